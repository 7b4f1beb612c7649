//! A comparison's runs on the screen while they run: a row for each policy, a column for each seed, or for
//! each trial of a tuning.

use std::time::{Duration, Instant};

use allot_base::Result;

use crate::interrupt;
use crate::jobs::{Field, Happened, JobState, Jobs};
use crate::screen::Screen;

/// Completes the remaining runs. `after` is called whenever some end. Returns false if the user stopped it.
pub fn all_over(
    jobs: &mut Jobs<'_>,
    screen: &mut Screen<'_>,
    after: &mut dyn FnMut(&Jobs<'_>),
) -> Result<bool> {
    let stop = interrupt::listen("stopping: samples are kept; press Ctrl-C again to discard them");
    let mut table = Table { began: Instant::now(), before: jobs.all.iter().map(|j| j.share).sum(), lines: 0 };
    let mut looked: Option<Instant> = None;
    let (began, mut told, mut paused) = (Instant::now(), false, false);
    loop {
        let stopping = stop.is_asked();
        let Happened { ended, words } = jobs.poll(stopping)?;
        if !words.is_empty() {
            // The next table is drawn below these lines.
            for words in &words {
                screen.tell(words);
            }
            table.lines = 0;
        }
        for (n, i) in ended.iter().enumerate() {
            Table::ended(jobs, *i, ended.len() - 1 - n, screen);
        }
        if !ended.is_empty() {
            after(jobs);
        }
        if stopping {
            if !paused {
                // The line stands below the table, so the table is drawn again below it.
                table.lines = 0;
                paused = true;
            }
            jobs.pause()?;
        } else {
            jobs.start()?;
        }
        let open = jobs.count(|state| matches!(state, JobState::Waiting));
        if jobs.with_executor() == 0 && (stopping || open == 0) {
            table.draw(jobs, screen);
            // A paused run was stopped from outside.
            return Ok(!stopping && jobs.count(|state| matches!(state, JobState::Paused)) == 0);
        }
        if jobs.with_executor() == 0 && !told && began.elapsed() > Duration::from_secs(2) {
            screen.tell(
                "waiting for a process that is still working on a run, such as one of a comparison that \
                 was killed",
            );
            told = true;
        }
        if looked.is_none_or(|at| at.elapsed() >= Duration::from_millis(700)) {
            if screen.live {
                jobs.look();
                table.draw(jobs, screen);
            }
            looked = Some(Instant::now());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The table of all runs.
struct Table {
    began: Instant,
    /// The finished work at the start, in runs.
    before: f64,
    /// Number of lines drawn last.
    lines: usize,
}

impl Table {
    /// Prints a line for an ended run if the table can't be redrawn in place. `later` runs ended at the
    /// same time and are reported after it.
    fn ended(jobs: &Jobs<'_>, i: usize, later: usize, screen: &mut Screen<'_>) {
        let job = &jobs.all[i];
        let (name, called) = (&jobs.field.rows[job.planned.arm], &jobs.field.columns[job.planned.column]);
        let over =
            jobs.count(|s| matches!(s, JobState::Finished(_) | JobState::Failed(_))).saturating_sub(later);
        let words = match &job.state {
            JobState::Finished(accuracy) => format!("accuracy {accuracy:.4}"),
            JobState::Failed(reason) => format!("failed: {reason}"),
            JobState::Paused => "paused".to_owned(),
            JobState::Waiting | JobState::Queued | JobState::Running => return,
        };
        if !screen.live {
            let all = jobs.all.len();
            let word = if job.planned.trial.is_some() { "trial" } else { "seed" };
            screen.tell(format_args!("{over:>4}/{all}  {name:<24} {word} {called:<6} {words}"));
        }
    }

    fn draw(&mut self, jobs: &Jobs<'_>, screen: &mut Screen<'_>) {
        use std::fmt::Write as _;
        if !screen.live {
            return;
        }
        let lines = self.text(jobs);
        let mut drawn = String::new();
        if self.lines > 0 {
            let _ = write!(drawn, "\x1b[{}A", self.lines);
        }
        // A narrow terminal truncates the line instead of wrapping it.
        drawn.push_str("\r\x1b[?7l");
        for line in &lines {
            let _ = writeln!(drawn, "\x1b[2K{line}");
        }
        drawn.push_str("\x1b[?7h");
        self.lines = lines.len();
        let _ = screen.progress.write_all(drawn.as_bytes());
        let _ = screen.progress.flush();
    }

    fn text(&self, jobs: &Jobs<'_>) -> Vec<String> {
        let Field { rows, columns, .. } = jobs.field;
        let wide = rows.iter().map(|name| name.chars().count()).max().unwrap_or(0).min(24);
        let head: Vec<String> = columns.iter().map(|called| format!("{called:>6}")).collect();
        let mut lines = vec![format!("{:wide$}{}", "", head.concat())];
        for (arm, name) in rows.iter().enumerate() {
            let short: String = name.chars().take(24).collect();
            let cell = |column: usize| {
                let job = jobs.all.iter().find(|j| j.planned.arm == arm && j.planned.column == column);
                job.map_or_else(
                    || " ".repeat(6),
                    |job| match &job.state {
                        JobState::Waiting | JobState::Queued => format!("{:>6}", "·"),
                        JobState::Running => format!("{:>5.0}%", 100.0 * job.share),
                        JobState::Finished(accuracy) => format!("{accuracy:>6.3}"),
                        JobState::Failed(_) => format!("{:>6}", "failed"),
                        JobState::Paused => format!("{:>6}", "paused"),
                    },
                )
            };
            let cells: String = (0..columns.len()).map(cell).collect();
            lines.push(format!("{short:wide$}{cells}"));
        }
        let over = jobs.count(|s| matches!(s, JobState::Finished(_) | JobState::Failed(_)));
        let done: f64 = jobs.all.iter().map(|j| j.share).sum::<f64>() - self.before;
        let left = jobs.all.len() as f64 - self.before - done;
        let seconds = self.began.elapsed().as_secs_f64();
        let time = if done > 0.05 { about(seconds / done * left) } else { String::new() };
        let (all, running) = (jobs.all.len(), jobs.count(|s| matches!(s, JobState::Running)));
        let queued = match jobs.count(|s| matches!(s, JobState::Queued)) {
            0 => String::new(),
            n => format!(", {n} queued"),
        };
        lines.push(format!("{over} of {all} runs are over, {running} under way{queued}{time}"));
        lines
    }
}

fn about(seconds: f64) -> String {
    if seconds < 90.0 {
        format!(", {seconds:.0} s left")
    } else {
        format!(", {:.0} min left", seconds / 60.0)
    }
}
