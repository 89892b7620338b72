//! The service by which nodes ask each other for their samples.

use crate::admin::{Batches, batches, check};
use crate::parts::viewed;
use crate::rates::Rates;
use crate::wire::{self, statistics_server::Statistics};
use quorate_broker::Broker;
use quorate_broker::view::Attempts;
use tonic::{Request, Response, Status};

/// The samples and logins of one node.
#[derive(Clone, Debug)]
pub struct StatisticsService {
    broker: Broker,
    rates: Rates,
}

impl StatisticsService {
    /// The service of one node, to be mounted at the rpc port.
    #[must_use]
    pub fn new(broker: Broker, rates: Rates) -> Self {
        Self { broker, rates }
    }
}

fn attempt(attempts: &Attempts) -> wire::Attempt {
    wire::Attempt {
        protocol: attempts.protocol.name().to_owned(),
        succeeded: attempts.succeeded,
        failed: attempts.failed,
        ..wire::Attempt::default()
    }
}

/// Logins at this node, which are counted from 0 again if the request says so.
pub(crate) fn attempts(broker: &Broker, request: wire::AttemptsRequest) -> Vec<wire::Attempt> {
    let views = broker.views();
    let shown = if request.by_source {
        let sources = views.attempts_by_source().into_iter();
        let source = sources.map(|source| wire::Attempt {
            from: source.from.to_string(),
            user: source.user.to_string(),
            ..attempt(&source.attempts)
        });
        source.collect()
    } else {
        views.attempts().iter().map(attempt).collect()
    };
    if request.reset {
        broker.operator().reset_attempts(request.by_source);
    }
    shown
}

#[tonic::async_trait]
impl Statistics for StatisticsService {
    type GetStatisticsStream = Batches<wire::StatisticsPart>;

    async fn get_statistics(
        &self,
        request: Request<wire::StatisticsRequest>,
    ) -> Result<Response<Self::GetStatisticsStream>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        let (rates, me) = (self.rates.clone(), u32::from(self.broker.node().0));
        let answer = viewed(move || rates.answer(&request, me)).await?;
        // The code that the asking node takes for this answer (`api::cluster`).
        let answer = answer.map_err(|error| Status::out_of_range(error.to_string()))?;
        Ok(batches(answer, Vec::new(), |statistics, _| wire::StatisticsPart { statistics }))
    }

    async fn get_attempts(
        &self,
        request: Request<wire::AttemptsRequest>,
    ) -> Result<Response<wire::Attempts>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        Ok(Response::new(wire::Attempts { attempts: attempts(&self.broker, request) }))
    }
}
