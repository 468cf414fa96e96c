//! One module for each family of commands.

pub mod broker;
pub mod consume;
pub mod group;
pub mod log;
pub mod publish;
pub mod time;
pub mod topic;
pub mod tune;

use clap::Args;
use corelog_client::transport::{Client, ClientSettings};

use crate::failure::Failure;

/// Which broker to talk to.
#[derive(Args, Clone, Debug)]
pub struct Bootstrap {
    /// Brokers to ask first: HOST:PORT, or several separated by commas.
    #[arg(long, env = "CORELOG_BOOTSTRAP", default_value = "127.0.0.1:9092")]
    pub bootstrap: String,
}

impl Bootstrap {
    /// A client of that cluster.
    pub async fn connect(&self) -> Result<Client, Failure> {
        for address in self.bootstrap.split(',') {
            let port = address.trim().rsplit_once(':').map(|(_, port)| port);
            if port.and_then(|port| port.parse::<u16>().ok()).is_none() {
                return Err(Failure::usage(format!(
                    "--bootstrap {address}: give HOST:PORT, such as 127.0.0.1:9092"
                )));
            }
        }
        Ok(Client::connect(&self.bootstrap, ClientSettings::default()).await?)
    }
}
