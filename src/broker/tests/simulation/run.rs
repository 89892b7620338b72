//! Runs of seeds, each in a process of its own: log lines contain numbers that are counted for each
//! process.

use crate::{driver, system_chance, world::Trace};
use quorate_types::PlantedBug;
use std::{
    env,
    fs::{self, File},
    panic,
    path::PathBuf,
    process::{self, Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Gives a child process its seed and the path of its trace.
const CHILD: &str = "QUORATE_SIMULATION_CHILD";

/// Longest wall time of one run; most take two seconds.
const LONGEST: Duration = Duration::from_secs(600);

/// A run under way.
pub struct Run {
    pub seed: u64,
    /// The file of its trace; that of its errors is beside it.
    pub trace: PathBuf,
    child: Child,
}

impl Run {
    /// Starts the test of that name as a child process.
    pub fn start(test: &str, seed: u64, trace: PathBuf, planted: Option<PlantedBug>) -> Self {
        let child = Command::new(env::current_exe().unwrap())
            .args([test, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"])
            .env(CHILD, format!("{seed} {}", trace.display()))
            .env("QUORATE_PLANTED_BUG", planted.map_or_else(String::new, |bug| format!("{bug:?}")))
            .stdout(Stdio::null())
            .stderr(File::create(trace.with_extension("errors")).unwrap())
            .spawn()
            .unwrap();
        Self { seed, trace, child }
    }

    /// Waits for the end; gives the trace, or why the run failed. A run that does not end is killed:
    /// simulated time does not pass while a task spins.
    pub fn end(mut self) -> Result<String, String> {
        let until = Instant::now() + LONGEST;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > until {
                self.child.kill().unwrap();
            }
            thread::sleep(Duration::from_millis(20));
        };
        let errors = self.trace.with_extension("errors");
        if status.code().is_none() {
            return Err(format!("it did not end by itself within {LONGEST:?}: {status}"));
        }
        if !status.success() {
            return Err(fs::read_to_string(errors).unwrap());
        }
        let trace = fs::read_to_string(&self.trace).unwrap();
        fs::remove_file(errors).unwrap();
        fs::remove_file(self.trace).unwrap();
        Ok(trace)
    }
}

/// Carries out the seed of this process, if [`Run::start`] has started it; false if not.
pub fn run_as_child() -> bool {
    let Ok(child) = env::var(CHILD) else { return false };
    let (seed, file) = child.split_once(' ').unwrap();
    let (seed, file, trace) = (seed.parse().unwrap(), PathBuf::from(file), Trace::default());
    let (of_panic, of_end) = (trace.clone(), trace.clone());
    let (path, print) = (file.clone(), panic::take_hook());
    // Also a panic of a task that nobody waits for fails the run.
    panic::set_hook(Box::new(move |panic| {
        print(panic);
        let _ = fs::write(&path, of_panic.text());
        process::exit(101);
    }));
    system_chance::seed(seed);
    thread::spawn(move || driver::run(seed, trace)).join().unwrap();
    fs::write(file, of_end.text()).unwrap();
    true
}
