//! `quorate recover-quorum`: the last resort when a majority of the nodes is lost for good (MEM 14). It
//! works on the data directory of one node that does not run, first says what is lost by it, and
//! changes nothing without `--yes`.

use clap::Parser;
use quorate_raft::{LastResortError, ReplicaSurvey, Survey};
use quorate_storage::{Database, OpenError, Options as StorageOptions, owner};
use quorate_types::{GroupId, Incarnation, ResourceName, WallTime};
use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Makes one node the whole cluster, when a majority is lost for good: the last resort.
///
/// The node of the data directory becomes the only member, with what the directory has. Stop the node
/// first. All other data directories of the cluster are refused from then on: their nodes can only join
/// anew, with empty ones.
///
/// Without --yes it says what would be lost, and changes nothing; it counts as one opening of the
/// directory. If there are several survivors, compare them, and use the one that has the most. When it
/// was done, a repeat changes nothing; when it was interrupted, a repeat completes it.
#[derive(Clone, Debug, Parser)]
#[command(name = "recover-quorum")]
pub(crate) struct Options {
    /// Data directory of the node that goes on
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Do it: what the other nodes have and this directory lacks is lost
    #[arg(long)]
    yes: bool,
}

/// Why the command fails: one line.
#[derive(Debug, thiserror::Error)]
enum RecoverError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("data directory {path}: {source}")]
    LastResort { path: PathBuf, source: LastResortError },
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
}

/// Runs the command.
pub(crate) fn main(options: &Options) -> ExitCode {
    match run(options) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("quorate: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<String, RecoverError> {
    let Options { data_dir, yes } = options;
    let database = open(data_dir)?;
    let result = with(&database, data_dir, *yes);
    database.close();
    result
}

/// Opens a directory that exists, and that no process uses.
fn open(data_dir: &Path) -> Result<Arc<Database>, RecoverError> {
    let mut options = StorageOptions::new(owner(data_dir)?, Incarnation(rand::random()));
    options.chance = rand::random();
    // A failed write is reported by who waits for it.
    options.fatal = Arc::new(|_| {});
    Ok(Database::open(data_dir, options)?)
}

fn with(database: &Arc<Database>, path: &Path, yes: bool) -> Result<String, RecoverError> {
    let failed = |source| RecoverError::LastResort { path: path.to_owned(), source };
    let survey = Survey::of(database).map_err(failed)?;
    let now = WallTime(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis));
    if survey.is_done() {
        let (node, epoch) = (survey.node, survey.epoch.number());
        return Ok(format!(
            "Nothing to do, and nothing was changed: node {node} is the only member of its cluster and \
             the only voter of all groups already, in epoch {epoch}. Start it.\n"
        ));
    }
    let mut text = Report { survey: &survey, path, now }.to_string();
    let epoch = survey.next_epoch(rand::random());
    if yes {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        runtime.block_on(survey.recover(epoch, now)).map_err(failed)?;
    }
    // A text in memory.
    let _ = match yes {
        true => writeln!(
            text,
            "Done: node {} is the only member now, in epoch {}. Start it; then start the other nodes, each \
             with an empty data directory: they join by themselves.",
            survey.node,
            epoch.number()
        ),
        false => writeln!(text, "Nothing was changed. Repeat the command with --yes to do this."),
    };
    Ok(text)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What the last resort would keep and lose.
struct Report<'a> {
    survey: &'a Survey,
    path: &'a Path,
    now: WallTime,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Survey { node, abandoned, epoch, replicas, lost, behind, .. } = self.survey;
        let path = self.path.display();
        writeln!(f, "The last resort makes node {node} the whole cluster, with what {path} has.")?;
        writeln!(f, "The directory is of epoch {}.\n", epoch.number())?;
        writeln!(f, "These members are abandoned. Their data directories are refused for ever:")?;
        for (node, address) in abandoned {
            writeln!(f, "  node {node} ({address})")?;
        }
        if abandoned.is_empty() {
            writeln!(f, "  none")?;
        }
        writeln!(f, "\nThe directory has of each group (0 is the catalog):")?;
        for (group, replica) in replicas {
            self.kept(f, *group, replica)?;
        }
        writeln!(f, "What these groups have confirmed after their last entry is lost.")?;
        if !lost.is_empty() {
            writeln!(
                f,
                "\nIt has nothing that counts of these groups. Their queues are lost, with all messages:"
            )?;
            queues(f, lost)?;
        }
        if !behind.is_empty() {
            writeln!(f, "\nThese queues are lost too: they were made after the last entry:")?;
            queues(f, behind)?;
        }
        writeln!(
            f,
            "\nUse it on one data directory only: a second one becomes a second cluster, with its own messages, \
             and the two never become one again.\n"
        )
    }
}

fn queues(
    f: &mut fmt::Formatter<'_>,
    groups: &BTreeMap<GroupId, Vec<ResourceName>>,
) -> fmt::Result {
    for (group, queues) in groups {
        writeln!(f, "  group {group}: {} queues", queues.len())?;
        for queue in queues {
            writeln!(f, "    queue '{}' in vhost '{}'", queue.name, queue.vhost)?;
        }
    }
    Ok(())
}

impl Report<'_> {
    fn kept(
        &self,
        f: &mut fmt::Formatter<'_>,
        group: GroupId,
        replica: &ReplicaSurvey,
    ) -> fmt::Result {
        match replica.last {
            Some(last) => {
                write!(f, "  group {group}: last entry {} of term {}", last.index, last.term)?
            }
            None => write!(f, "  group {group}: no entry")?,
        }
        if let Some(applied) = replica.applied {
            write!(f, ", state of entry {}", applied.index)?;
        }
        if let Some(made) = replica.made {
            let seconds = self.now.0.saturating_sub(made.0) / 1000;
            write!(f, ", last command {seconds} s ago")?;
        }
        writeln!(f, "{}", if replica.votes { "" } else { "; it did not vote, and may lack much" })
    }
}
