"""Pilot-Commit (arXiv 2605.26606): tries each prompt with a few rollouts, the pilots, and commits
the rest to prompts that pilots solve sometimes. Pilots and commits share a call: a round tries the
next prompts and commits to those that earlier rounds, or steps, tried.

The twin of `../src/lib.rs`, which tells where it departs from upstream: the same plans, to the bit.
"""

from dataclasses import dataclass, field
from math import ceil, gcd, isfinite

from allot_policy import BadSetting, Chance, Pick, Request, log, or_else, sample, setting, train

name = "pilot-commit"
version = "0.1.0"
summary = "tries each prompt with a few rollouts and commits the rest where it pays"

LOOKED_AT = 1000
"""Numbers of pilots that are looked at for one that can survive."""


@dataclass
class Settings:
    """The defaults are those of upstream's README and scripts, not of its yaml."""

    pilot: int = setting(8, "Rollouts to try a prompt with.", minimum=0)
    commit: int = setting(24, "Rollouts to add where the pilots were promising.", minimum=0)
    prompts: int = setting(
        0, "Prompts to try in each round; 0 for three times the groups in an update.", minimum=0
    )
    solved_at_least: float = setting(0.125, "Commit only where at least this share of the pilots is correct.")
    failed_at_least: float = setting(0.25, "Commit only where at least this share of the pilots is wrong.")
    evict_at: float = setting(
        1.0, "Never offer a prompt again when this share of its pilots is correct; above 1 for never."
    )
    sampling: str = setting(
        "random",
        "Which to commit to first: random, max-variance or most-recent.",
        choices=["random", "max-variance", "most-recent"],
    )
    max_off: int = setting(
        4,
        "Pilots are held for further steps up to this age, in updates. They are a step older when used.",
        minimum=0,
    )
    pilot_kept: int = setting(
        0,
        "Pilots of a committed prompt to train on, half of them correct if possible; 0 for all.",
        minimum=0,
    )
    epoch_end: str = setting(
        "keep",
        "What becomes of rollouts on hand at the end of an epoch: keep or discard.",
        choices=["keep", "discard"],
    )
    ranks: int = setting(
        1,
        "Commits of a round are cut until its rollouts are a multiple of this: upstream's number of GPUs.",
        minimum=0,
    )


@dataclass
class State:
    committed: list = field(default_factory=list)
    """Prompts committed to in this step, in order of choice, each with its pilots on hand: as many as
    were asked for, unless the budget ended or some could not be judged."""
    fresh: list = field(default_factory=list)
    """Prompts tried in the last round."""
    epoch: int = 0
    """The epoch that prompts are tried from."""
    begun: bool = False
    """Whether `epoch` is known."""


def begin(settings, run):
    for count in ("pilot", "commit", "ranks"):
        if getattr(settings, count) == 0:
            raise BadSetting(count, "must be at least 1")
    survivable(settings)
    if settings.pilot_kept > settings.pilot:
        raise BadSetting("pilot_kept", "there are not as many pilots")
    if run.pool < prompts(settings, run):
        reason = f"the pool has {run.pool} prompts on offer, not {prompts(settings, run)}"
        if settings.epoch_end == "discard":
            raise BadSetting("prompts", reason)
        log.warn(reason)
    if run.max_age <= settings.max_off:
        log.warn("the host's max-age lets pilots go before max-off does")


def survivable(settings):
    """Refuses settings by which no prompt would ever be committed to."""

    def survives(pilot):
        first = settings.solved_at_least * pilot
        first = max(ceil(first), 0) if isfinite(first) else 0
        # Rounding may be off by one.
        return any(passes(settings, k / pilot) for k in range(max(first - 1, 0), min(first + 1, pilot) + 1))

    least = next(filter(survives, range(1, LOOKED_AT + 1)), None)
    if settings.pilot > LOOKED_AT or (least is not None and least <= settings.pilot):
        return
    shares = (
        f"can't be solved at least {settings.solved_at_least:g} and failed at least {settings.failed_at_least:g} of the "
        "time, so no prompt would ever be committed to"
    )
    if least is None:
        raise BadSetting("solved_at_least", f"pilots {shares}")
    pilots = "1 pilot" if settings.pilot == 1 else f"{settings.pilot} pilots"
    raise BadSetting("pilot", f"{pilots} {shares}; set {least} or more")


def decide(settings, run, state, view):
    pilot = settings.pilot
    chance = Chance(view.seed)
    groups = {group.prompt: group for group in view.groups}
    if view.round == 0:
        state.committed, state.fresh = [], []
    # A commit of which nothing came is a survivor again; of which a part came, done.
    state.committed = [[p, n] for p, n in state.committed if p in groups and len(groups[p]) > n]
    done = {p for p, _ in state.committed}
    survivors = [g for g in view.groups if g.prompt not in done and passes(settings, g.pass_rate)]
    tried = set(state.fresh)
    fresh = [g for g in view.groups if g.prompt in tried]
    # The budget may have cut the last one's pilots short: too few to evict it for good.
    if fresh and len(fresh[-1]) < pilot:
        fresh.pop()
    evict = [g.prompt for g in fresh if g.pass_rate >= settings.evict_at]

    over = epoch_over(settings, run, state, view)
    full = len(state.committed) >= run.groups
    if full or not view.budget.open:
        committed = [(groups[p], n) for p, n in state.committed[: run.groups]]
        plan = learn(settings, run, committed, survivors, over is None, chance)
        return plan.skip(over or []).evict(evict)
    if over is not None:
        nothing = not view.groups and over
        return (sample([]) if nothing else train([])).skip(over).evict(evict)

    offered = [prompt.id for prompt in view.offer(prompts(settings, run))]
    size = min(len(survivors), run.groups - len(state.committed))
    size = gpu_cut(size, len(offered) * pilot, settings.commit, settings.ranks)
    chosen = choose(settings.sampling, survivors, size, chance)
    if not offered and not chosen:
        committed = [(groups[p], n) for p, n in state.committed]
        return learn(settings, run, committed, survivors, True, chance).evict(evict)
    state.committed += [[group.prompt, len(group)] for group in chosen]
    state.fresh = offered
    pilots = [Request(prompt, pilot) for prompt in offered]
    commits = [Request(group.prompt, settings.commit) for group in chosen]
    plan = sample(pilots + commits).evict(evict)
    return plan.metric("survivors", len(survivors)).metric("commits", len(chosen))


def prompts(settings, run):
    """Prompts to try in each round."""
    return or_else(settings.prompts, 3 * run.groups)


def passes(settings, rate):
    """Whether pilots of this pass rate are promising: both ends count in."""
    return settings.solved_at_least <= rate <= 1 - settings.failed_at_least


def learn(settings, run, committed, survivors, holds, chance):
    """Trains on the committed groups, pilots and commits together, in order of choice."""
    picks = [pick(settings, group, pilots, chance) for group, pilots in committed]
    # Nothing committed and nothing left to sample: pilots are better than no update.
    spent = 0 if picks else min(len(survivors), run.groups)
    picks += [Pick.all(group.prompt) for group in survivors[:spent]]
    hold = [g.prompt for g in survivors[spent:] if holds and g.age <= settings.max_off]
    return train(picks).hold(hold).metric("survivors", len(survivors))


def pick(settings, group, pilots, chance):
    """A committed group's rollouts to train on; the first `pilots` are its pilots."""
    if settings.pilot_kept == 0:
        return Pick.all(group.prompt)
    kept = downsample(group.correct[:pilots], settings.pilot_kept, chance)
    return Pick.some(group.prompt, kept + list(range(pilots, len(group))))


def epoch_over(settings, run, state, view):
    """Where epochs end for good and too few prompts of this one are on offer for a round: those
    few, else None. Upstream's loader drops them (`drop_last`)."""
    if settings.epoch_end == "keep":
        return None
    if view.pool:
        first = view.pool[0].epoch
        if not state.begun or (not view.groups and first > state.epoch):
            state.epoch, state.begun = first, True
    rest = [prompt.id for prompt in view.pool if prompt.epoch <= state.epoch]
    return rest if len(rest) < prompts(settings, run) else None


def choose(sampling, survivors, size, chance):
    """`size` of the survivors, in order of choice. All of them, as they stand, if there are no
    more."""
    if len(survivors) <= size:
        return survivors
    if sampling == "random":
        return [survivors[i] for i in chance.draw(len(survivors), size)]
    if sampling == "most-recent":
        return sorted(survivors, key=newest)[:size]
    return sorted(survivors, key=lambda g: (-variance(g), newest(g)))[:size]


def variance(group):
    """The variance of right and wrong: k (n - k) / n², rounded once, so that equal ones tie."""
    return group.solved * (len(group) - group.solved) / len(group) ** 2


def newest(group):
    """The age of a group's newest rollout."""
    return min(group.ages)


def gpu_cut(size, pilots, commit, ranks):
    """Commits of a round, cut so that all its rollouts are a multiple of `ranks`."""
    if (pilots + size * commit) % ranks == 0:
        return size
    if pilots % ranks == 0:
        # Down to a multiple of lcm(ranks, commit) rollouts, which is this many commits.
        return size - size % (ranks // gcd(ranks, commit))
    return next((n for n in range(size - 1, -1, -1) if (pilots + n * commit) % ranks == 0), 0)


def downsample(correct, m, chance):
    """Positions of `m` pilots of largest variance: half of them correct, those first, then the
    others; where one kind is short the other fills up. Which of a kind is drawn."""
    ones = [i for i, right in enumerate(correct) if right]
    zeros = [i for i, right in enumerate(correct) if not right]
    m = min(m, len(correct))
    right = max(min(m // 2, len(ones)), m - len(zeros))
    kept = [ones[i] for i in chance.draw(len(ones), right)]
    return kept + [zeros[i] for i in chance.draw(len(zeros), m - right)]
