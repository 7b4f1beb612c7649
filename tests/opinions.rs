//! What a grader that is processes says of answers, in their order.

use allot_base::Result;
use allot_judges::processes::Processes;
use allot_judges::protocol::{Opinion, Question};

/// Asks about all of these, and waits.
pub async fn opinions_on(processes: &mut Processes, questions: Vec<Question>) -> Result<Vec<Opinion>> {
    questions.into_iter().enumerate().for_each(|(place, question)| processes.begin(place, question));
    let mut opinions = processes.finish().await?;
    opinions.sort_by_key(|(place, _)| *place);
    Ok(opinions.into_iter().map(|(_, opinion)| opinion).collect())
}
