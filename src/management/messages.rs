//! The service of messages and dry runs, which `quorate ctl` calls, and nodes for each other.

use crate::admin::check;
use crate::browser::Browser;
use crate::convert::refusal;
use crate::policies::{definitions_text, policy, policy_name};
use crate::wire::{self, dry_run_policy_request::Change, messages_server::Messages};
use bytes::Bytes;
use quorate_broker::ImportError;
use tonic::{Request, Response, Status, Streaming};

/// Bytes of an answer in one message, far below the 4 MiB that gRPC takes.
const CHUNK_BYTES: usize = 1 << 20;

type Chunks = tokio_stream::Iter<std::vec::IntoIter<Result<wire::JsonChunk, Status>>>;

/// The service of one node.
#[derive(Clone, Debug)]
pub struct MessageService {
    browser: Browser,
}

impl MessageService {
    /// The service of one node, to be mounted at the rpc port.
    #[must_use]
    pub fn new(browser: Browser) -> Self {
        Self { browser }
    }
}

fn chunks(json: &Bytes) -> Response<Chunks> {
    let chunk = |place: usize| {
        let json = json.slice(place..json.len().min(place + CHUNK_BYTES));
        Ok(wire::JsonChunk { json })
    };
    let chunks: Vec<_> = (0..json.len()).step_by(CHUNK_BYTES).map(chunk).collect();
    Response::new(tokio_stream::iter(chunks))
}

#[tonic::async_trait]
impl Messages for MessageService {
    type BrowseStream = Chunks;
    type ExplainStream = Chunks;
    type GetSettingsStream = Chunks;
    type DryRunPolicyStream = Chunks;
    type DryRunDefinitionsStream = Chunks;

    async fn browse(
        &self,
        request: Request<wire::BrowseRequest>,
    ) -> Result<Response<Chunks>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        Ok(chunks(&self.browser.browse(request).await?))
    }

    async fn explain(
        &self,
        request: Request<wire::ExplainRequest>,
    ) -> Result<Response<Chunks>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        Ok(chunks(&self.browser.explain(request).await?))
    }

    async fn get_settings(
        &self,
        request: Request<wire::SettingsRequest>,
    ) -> Result<Response<Chunks>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        Ok(chunks(&self.browser.settings(request).await?))
    }

    async fn get_excess(
        &self,
        request: Request<wire::ExcessRequest>,
    ) -> Result<Response<wire::Excess>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        Ok(Response::new(self.browser.excess(request).await?))
    }

    async fn dry_run_policy(
        &self,
        request: Request<wire::DryRunPolicyRequest>,
    ) -> Result<Response<Chunks>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        let dry_runs = self.browser.broker().dry_runs();
        let run = match request.change {
            Some(Change::Set(given)) => dry_runs.policy(policy(&given)?).await,
            Some(Change::Clear(given)) => dry_runs.clear_policy(policy_name(&given)?).await,
            None => return Err(Status::invalid_argument("no change is given")),
        };
        let run = run.map_err(|exception| refusal(&exception))?;
        Ok(chunks(&self.browser.weighed(run).await?))
    }

    async fn dry_run_definitions(
        &self,
        request: Request<Streaming<wire::DefinitionsChunk>>,
    ) -> Result<Response<Chunks>, Status> {
        let text = definitions_text(request.into_inner()).await?;
        let run = self.browser.broker().dry_runs().definitions(text.into()).await;
        let run = run.map_err(|error| match error {
            ImportError::Invalid(error) => Status::invalid_argument(error.to_string()),
            ImportError::Unavailable(text) => Status::unavailable(text),
        })?;
        Ok(chunks(&self.browser.weighed(run).await?))
    }
}
