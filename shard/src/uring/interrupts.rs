//! Which CPU hears of a disk first.
//!
//! Where a disk has one queue, all its interrupts go to one CPU. A core on any other CPU is woken from there,
//! which on a virtual machine takes some 30 us longer; so that CPU is given to a core first. Disks with a queue
//! for each CPU interrupt the one that asked, and choose nothing here.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Below so many interrupts nothing is known of where they go.
const INTERRUPTS_MIN: u64 = 1_000;

/// The CPU that takes nine tenths and more of the interrupts of the disk that holds `folder`, if there is one
/// and the kernel tells.
pub(super) fn interrupt_cpu(folder: &Path) -> Option<usize> {
    let device = fs::metadata(folder).ok()?.dev();
    let number = format!("{}:{}", libc::major(device), libc::minor(device));
    let node = fs::canonicalize(Path::new("/sys/dev/block").join(number)).ok()?;
    let numbers = interrupt_numbers(&node)?;
    let counts = fs::read_to_string("/proc/interrupts").ok()?;
    busiest_cpu(&counts, &numbers)
}

/// The numbers of the interrupts of a block device: those of the bus device that it belongs to.
fn interrupt_numbers(node: &Path) -> Option<Vec<String>> {
    let of = |device: &Path| fs::read_dir(device.join("msi_irqs")).ok();
    let listed = node.ancestors().find_map(of)?;
    let names = listed.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Some(names.collect())
}

/// The CPU with nearly all counts of these interrupts, in the kernel's table of them.
fn busiest_cpu(table: &str, numbers: &[String]) -> Option<usize> {
    let mut lines = table.lines();
    let cpus: Vec<usize> = lines
        .next()?
        .split_whitespace()
        .filter_map(|name| name.strip_prefix("CPU")?.parse().ok())
        .collect();
    let mut sums = vec![0_u64; cpus.len()];
    for line in lines {
        let Some((number, counts)) = line.split_once(':') else {
            continue;
        };
        if numbers.iter().any(|wanted| wanted == number.trim()) {
            for (sum, count) in sums.iter_mut().zip(counts.split_whitespace()) {
                *sum = sum.saturating_add(count.parse().unwrap_or(0));
            }
        }
    }
    let total: u64 = sums.iter().fold(0, |total, sum| total.saturating_add(*sum));
    let (cpu, most) = cpus.iter().zip(&sums).max_by_key(|(_, sum)| **sum)?;
    (total >= INTERRUPTS_MIN && *most >= total / 10 * 9).then_some(*cpu)
}

/// An absolute path of a folder that may not be there yet: the nearest that is.
pub(super) fn nearest_folder(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    path.ancestors().find(|one| one.is_dir()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "           CPU0       CPU2       CPU3
  0:       1134          0          0   IO-APIC   2-edge      timer
 35:          0          2          0 PCI-MSIX-0000:00:02.0   0-edge      virtio1-config
 36:        500    5633676         11 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
 37:    4000000          0    4000000 PCI-MSIX-0000:00:03.0   0-edge      nvme0q1
NMI:          0          0          0   Non-maskable interrupts
";

    fn busiest(numbers: &[&str]) -> Option<usize> {
        let numbers: Vec<String> = numbers.iter().map(|one| (*one).to_owned()).collect();
        busiest_cpu(TABLE, &numbers)
    }

    #[test]
    fn one_queue_names_its_cpu_and_several_name_none() {
        assert_eq!(busiest(&["35", "36"]), Some(2));
        assert_eq!(busiest(&["37"]), None, "two CPUs share them");
        assert_eq!(busiest(&["35"]), None, "too few to tell");
        assert_eq!(busiest(&["99"]), None);
        assert_eq!(busiest_cpu("", &[]), None);
    }

    #[test]
    fn a_folder_to_be_made_is_where_its_parent_is() {
        let parent = std::env::temp_dir();
        let found = nearest_folder(&parent.join("not-there/nor-there")).unwrap();
        assert_eq!(found, parent);
    }
}
