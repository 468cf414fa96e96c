#!/usr/bin/env python3
"""The figures of docs/performance.md, in one run on one machine.

    cargo build --release && benches/figures.py --folder /var/tmp/corelog-figures [--only PART]...

Starts brokers of the release build on an empty data directory below --folder, which has to be on the disk to
measure and have 40 GB to spare, and prints Markdown tables. Needs fio. Each part measures what it compares with
in the same run: on a shared machine only the ratios say something, and each row is the median of --rounds.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
KAFKA_PORT, HTTP_PORT = 19092, 18080
BOOTSTRAP = f"127.0.0.1:{KAFKA_PORT}"


def say(text):
    print(text, flush=True)


def note(text):
    if sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)


class Broker:
    """A broker on one core, with a data directory that is emptied first unless it is to go on."""

    def __init__(self, go_on=False, cores=1):
        self.data = FOLDER / "data"
        if not go_on:
            shutil.rmtree(self.data, ignore_errors=True)
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [CORELOG, "dev", "--data-dir", self.data, "--cores", str(cores)]
            + ["--kafka-port", str(KAFKA_PORT), "--http-port", str(HTTP_PORT)],
            stdout=subprocess.DEVNULL,
            stderr=open(FOLDER / "broker.log", "w"),
        )
        self.ready_s = self.wait()

    def wait(self):
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{HTTP_PORT}/health/ready", timeout=1) as answer:
                    if answer.status == 200:
                        return time.monotonic() - self.began
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() - self.began > 60:
                sys.exit(f"the broker does not get ready; see {FOLDER / 'broker.log'}")
            time.sleep(0.005)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop(signal.SIGTERM)

    def stop(self, how):
        self.process.send_signal(how)
        self.process.wait()

    def cpu_s(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024 / 1e6
        return 0.0

    def bench(self, *arguments):
        return json.loads(ask("bench", *arguments, "--broker-pid", self.process.pid))

    def publish(self, topic, **options):
        arguments = []
        for name, value in options.items():
            arguments += ["--" + name.replace("_", "-"), value]
        found = self.bench("publish", "--topic", topic, *arguments)
        if found["errors"]:
            sys.exit(f"{found['errors']} publishes failed: {found['first_error']}")
        return found


def ask(*arguments):
    command = [CORELOG, *map(str, arguments), "--json"]
    if arguments[0] != "tune":
        command += ["--bootstrap", BOOTSTRAP]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


def fio(block, in_flight, direction):
    """MB/s, p50 and p99 in microseconds of durable overwrites, or of reads."""
    done = subprocess.run(
        ["fio", "--name=figures", f"--filename={FOLDER / 'fio'}", "--size=1g", f"--bs={block}"]
        + [f"--iodepth={in_flight}", f"--rw={direction}", "--ioengine=io_uring", "--direct=1"]
        + (["--sync=dsync", "--overwrite=1"] if direction == "write" else [])
        + ["--time_based", f"--runtime={SECONDS}", "--output-format=json"],
        capture_output=True, text=True, check=True,
    )
    found = json.loads(done.stdout)["jobs"][0][direction]
    share = found["clat_ns"]["percentile"]
    return found["bw_bytes"] / 1e6, share["50.000000"] / 1e3, share["99.000000"] / 1e3


def tune():
    return json.loads(ask("tune", "disk", "--data-dir", FOLDER, "--seconds", 6 * SECONDS))


def tuned(found, what, block_bytes, in_flight):
    for row in found[what]:
        if (row["block_bytes"], row["in_flight"]) == (block_bytes, in_flight):
            return row["mb_per_s"], row["p50_us"], row["p99_us"]
    return None


def median(rows):
    return tuple(statistics.median(column) for column in zip(*rows))


def spread(values):
    return f"{statistics.median(values):,.0f} ({min(values):,.0f}..{max(values):,.0f})"


def disk():
    """`tune disk` and fio, in turns."""
    sizes = [("append", "4k", 4096, 1), ("append", "64k", 65536, 1), ("append", "64k", 65536, 4)]
    sizes += [("append", "1m", 1 << 20, 1), ("append", "1m", 1 << 20, 4), ("read", "1m", 1 << 20, 4)]
    ours, theirs = {size: [] for size in sizes}, {size: [] for size in sizes}
    for _ in range(ROUNDS):
        found = tune()
        for size in sizes:
            what, name, block_bytes, in_flight = size
            row = tuned(found, what, block_bytes, in_flight)
            if row is not None:
                ours[size].append(row)
            theirs[size].append(fio(name, in_flight, "write" if what == "append" else "read"))
    say("| disk | in flight | fio: MB/s, p50, p99 us | `tune disk` | ratio |")
    say("| --- | --- | --- | --- | --- |")
    for size in sizes:
        what, name, _, in_flight = size
        a, b = median(theirs[size]), median(ours[size]) if ours[size] else (0, 0, 0)
        say(f"| {what} {name} | {in_flight} | {a[0]:,.0f}, {a[1]:.0f}, {a[2]:.0f} "
            f"| {b[0]:,.0f}, {b[1]:.0f}, {b[2]:.0f} | {b[0] / a[0]:.2f} |")


HEAD = "| what | MB/s (lowest..highest) | ack p50, p99 us | core-s/GB | RSS MB | durability |\n|" + " --- |" * 6


def row(what, runs):
    p50, p99 = (statistics.median(run["ack_us"][name] for run in runs) for name in ("p50", "p99"))
    cpu = statistics.median(run["broker_cpu_s_per_gb"] for run in runs)
    rss = max(run["broker_rss_mb"] for run in runs)
    rate = spread([run["mb_per_s"] for run in runs])
    say(f"| {what} | {rate} | {p50:,.0f}, {p99:,.0f} | {cpu:.2f} | {rss:.0f} | {runs[0]['durability']} |")


def publish():
    """The three publishing figures, each round beside the disk's own."""
    large = dict(partitions=1, producers=1, record_bytes=1000, batch_bytes=1_000_000, in_flight=4)
    medium = dict(partitions=8, producers=8, record_bytes=1000, batch_bytes=100_000, in_flight=4)
    single = dict(partitions=1, producers=1, record_bytes=1000, batch_bytes=1100, in_flight=1)
    cases = {
        "1 MB batches, 1 partition, 1 producer, 4 in flight": large,
        "100 kB batches, 8 partitions, 8 producers, 4 in flight": medium,
        "100 kB batches, 1 partition, 8 producers, 4 in flight": medium | dict(partitions=1),
        "one record at a time": single,
    }
    runs, block, page = {what: [] for what in cases}, [], []
    for round in range(ROUNDS):
        block.append(fio("1m", 4, "write"))
        page.append(fio("4k", 1, "write"))
        for what, options in cases.items():
            with Broker() as broker:
                runs[what].append(broker.publish(f"t{round}", seconds=SECONDS, **options))
    say(HEAD)
    for what, found in runs.items():
        row(what, found)
    block, page = median(block), median(page)
    say(f"\nfio beside it: 1 MiB, 4 in flight {block[0]:,.0f} MB/s; 4 KiB, 1 in flight p50 {page[1]:.0f}, "
        f"p99 {page[2]:.0f} us.")
    rate = statistics.median(run["mb_per_s"] for run in runs["1 MB batches, 1 partition, 1 producer, 4 in flight"])
    alone = runs["one record at a time"]
    p50, p99 = (statistics.median(run["ack_us"][name] for run in alone) for name in ("p50", "p99"))
    say(f"Ratios: 1 MB batches to the disk {rate / block[0]:.2f}; one record at a time p50 {p50 / page[1]:.1f}, "
        f"p99 {p99 / page[2]:.1f}.")


def partitions():
    """1,000 partitions against 8, 16 kB of each in a request."""
    few = dict(producers=8, record_bytes=1000, batch_bytes=16_000, batches_per_request=1, in_flight=4)
    runs = {8: [], 1000: []}
    for round in range(ROUNDS):
        for count, found in runs.items():
            with Broker() as broker:
                found.append(broker.publish(f"t{round}", partitions=count, seconds=SECONDS, **few))
    say(HEAD)
    for count, found in runs.items():
        row(f"16 kB batches, {count:,} partitions, 8 producers, 4 in flight", found)
    rates = [statistics.median(run["mb_per_s"] for run in found) for found in runs.values()]
    say(f"\nRatio: {rates[1] / rates[0]:.2f}.")


def used_mb(folder):
    return int(subprocess.run(["du", "-s", "-B1", folder], capture_output=True, text=True).stdout.split()[0]) / 1e6


def idle():
    """A broker without work: alone, then with 10,000 partitions and 5,000 connections."""

    def share(broker):
        time.sleep(2)
        began, cpu = time.monotonic(), broker.cpu_s()
        time.sleep(4 * SECONDS)
        return 100 * (broker.cpu_s() - cpu) / (time.monotonic() - began)

    say("| idle broker | CPU, % of a core | RSS MB | disk MB |\n| --- | --- | --- | --- |")
    with Broker() as broker:
        say(f"| empty | {share(broker):.2f} | {broker.rss_mb():.0f} | {used_mb(broker.data):.0f} |")
        ask("topic", "create", "idle", "--partitions", 10_000)
        broker.publish("idle", producers=8, record_bytes=100, batch_bytes=1000, in_flight=4, batches_per_request=50,
                       seconds=2 * SECONDS)
        connections = [socket.create_connection(("127.0.0.1", KAFKA_PORT)) for _ in range(5_000)]
        # Each has spoken: ApiVersions 0, as every client does first.
        for connection in connections:
            connection.sendall(b"\0\0\0\x0d\0\x12\0\0\0\0\0\1\0\3idl")
            assert connection.recv(4096)
        say(f"| 10,000 partitions written to, 5,000 connections | {share(broker):.2f} | {broker.rss_mb():.0f} "
            f"| {used_mb(broker.data):.0f} |")
        for connection in connections:
            connection.close()


def catch_up():
    """A consumer from the oldest record on, after a restart, alone and beside a publisher with a schedule."""
    large = dict(partitions=4, producers=4, record_bytes=1000, batch_bytes=1_000_000, in_flight=2)
    paced = dict(producers=1, record_bytes=1000, batch_bytes=100_000, in_flight=8, rate=100_000, linger_ms=1,
                 partitions=1, seconds=2 * SECONDS)
    with Broker() as broker:
        broker.publish("old", seconds=10, **large)
    reads, alone, beside, quiet, busy = [], [], [], [], []
    for round in range(ROUNDS):
        reads.append(fio("1m", 4, "read")[0])
        with Broker(go_on=True) as broker:
            alone.append(broker.bench("consume", "--topic", "old", "--seconds", 2 * SECONDS))
            quiet.append(broker.publish(f"new{round}", **paced))
            command = [CORELOG, "bench", "consume", "--topic", "old", "--seconds", str(2 * SECONDS + 2), "--json",
                       "--bootstrap", BOOTSTRAP]
            reader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            busy.append(broker.publish(f"new{round}", **paced))
            beside.append(json.loads(reader.communicate()[0]))
    say("| cold catch-up | MB/s | of the disk's sequential read |\n| --- | --- | --- |")
    disk = statistics.median(reads)
    for what, found in (("alone", alone), ("beside 100 MB/s of publishes", beside)):
        rates = [run["mb_per_s"] for run in found]
        say(f"| {what} | {spread(rates)} | {statistics.median(rates) / disk:.2f} |")
    say(f"\nfio reads 1 MiB, 4 in flight, at {disk:,.0f} MB/s.\n")
    say(HEAD)
    row("100,000 records/s on schedule, nobody reads", quiet)
    row("the same during a cold catch-up", busy)


def restart():
    """From the start after SIGKILL to ready, by what is retained."""
    say("| retained GB | ready after SIGKILL, s |\n| --- | --- |")
    options = dict(partitions=8, producers=8, record_bytes=1000, batch_bytes=1_000_000, in_flight=2)
    shutil.rmtree(FOLDER / "data", ignore_errors=True)
    for wanted_mb in (1_000, 22_000):
        broker = Broker(go_on=True)
        while used_mb(broker.data) < wanted_mb:
            broker.publish("retained", seconds=1 if wanted_mb < 2_000 else 4, **options)
        broker.stop(signal.SIGKILL)
        times = []
        for _ in range(ROUNDS):
            broker = Broker(go_on=True)
            times.append(broker.ready_s)
            # Killed under load again: otherwise the later starts would have nothing to recover.
            loader = subprocess.Popen([CORELOG, "bench", "publish", "--topic", "retained", "--producers", "8",
                                       "--seconds", "5", "--bootstrap", BOOTSTRAP],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(1.5 if wanted_mb > 2_000 else 0.5)
            broker.stop(signal.SIGKILL)
            loader.kill()
            loader.wait()
        say(f"| {used_mb(FOLDER / 'data') / 1e3:.1f} | {', '.join(f'{one:.2f}' for one in times)} |")


PARTS = {part.__name__: part for part in (disk, publish, partitions, idle, catch_up, restart)}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--folder", type=pathlib.Path, required=True, help="a folder on the disk to measure")
parser.add_argument("--only", action="append", choices=PARTS, help="one part; may be given more than once")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--seconds", type=int, default=5, help="how long one measurement takes")
parser.add_argument("--corelog", default=ROOT / "target/release/corelog", help="the binary to measure")
arguments = parser.parse_args()
FOLDER, ROUNDS, SECONDS, CORELOG = arguments.folder, arguments.rounds, arguments.seconds, arguments.corelog
FOLDER.mkdir(parents=True, exist_ok=True)
for name, part in PARTS.items():
    if arguments.only is None or name in arguments.only:
        note(f"measuring: {name}")
        say(f"\n### {name.replace('_', ' ').capitalize()}\n")
        part()
for leftover in (FOLDER / "data", FOLDER / "fio"):
    shutil.rmtree(leftover, ignore_errors=True)
    leftover.unlink(missing_ok=True)
