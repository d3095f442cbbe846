"""The class that lm-eval calls: its requests become runs of this project, and the texts of their rows its answers.

Loading this module loads lm-eval (0.4.9 to 0.4.13) and registers the class as `lopa_bench`.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from omegaconf import OmegaConf

from lopa_bench.errors import ConfigError
from lopa_bench.lm_eval.likelihood import Bound, why_not
from lopa_bench.lm_eval.requests import Request, write_requests
from lopa_bench.lm_eval.results import Continued, summary, texts_of, warn_of_failed
from lopa_bench.lm_eval.settings import agreed, composed, generating, quoted, words_of
from lopa_bench.models.checkpoint.folders import locate
from lopa_bench.models.kept import KeptNetwork
from lopa_bench.models.text.tokenizers import Codec, load_tokenizer
from lopa_bench.run.start import run_here
from lopa_bench.settings.config import Config
from lopa_bench.settings.unread import check_read, check_read_alone
from lopa_bench.settings.validate import validate

NAME = "lopa_bench"


@register_model(NAME)
class LopaBench(LM):
    """`config`: the words of a command line of this project, such as "model=mini decoder=lopa decoder.k=4".

    `likelihood`: monte_carlo for a bound of log-likelihoods by `mc_num` noised copies, drawn from `seed`; else such
    requests are refused. `batch_size` and `device` are --batch_size and --device: run.batch and backend.device.
    Raises ConfigError and what else a wrong command line raises, before a data set is loaded.
    """

    words: Sequence[str] = ()  # of the instance that was made last, for messages
    reads_device = True  # False where no --device was given: lm-eval 0.4.13 then hands over cuda:0 all the same

    def __init__(
        self,
        config: str | Sequence[str] | None = None,
        likelihood: str | None = None,
        mc_num: int | None = None,
        seed: int | None = None,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        device: str | None = None,
        trust_remote_code: bool = False,
        **others: Any,
    ) -> None:
        super().__init__()
        if others:
            allowed = "config, likelihood, mc_num, seed; settings of this project are words of config"
            raise ConfigError(f"--model_args {next(iter(others))} is unknown; allowed: {allowed}")
        if int(os.environ.get("WORLD_SIZE") or 1) > 1:
            raise ConfigError(
                f"WORLD_SIZE={os.environ['WORLD_SIZE']}: every process would answer every request; allowed: one "
                "process, without torchrun or accelerate launch"
            )
        if trust_remote_code:
            print("note: --trust_remote_code is for data sets: no code of a checkpoint is executed", file=sys.stderr)
        self.given = type(self).words = words_of(config)
        self.settings: Any = composed(self.given)
        self.changes = self._of_lm_eval(batch_size, device)
        self.settings = composed([*self.given, *self.changes])
        made: Any = OmegaConf.to_object(self.settings)
        assert isinstance(made, Config)
        validate(made)
        check_read(made)
        check_read_alone(made)
        self.config = made
        self.kept = KeptNetwork()  # all runs are of one model
        self.bound = Bound.make(likelihood, mc_num, seed, self.kept)
        self.done: list[Continued] = []

    def _of_lm_eval(self, batch_size: int | str | None, device: str | None) -> list[str]:
        """lm-eval's own options as settings. It hands over batch_size=1 where none was given."""
        changes = []
        if batch_size is not None and str(batch_size) != "1":
            if not re.fullmatch(r"[1-9][0-9]*", str(batch_size)):
                raise ConfigError(f"--batch_size {batch_size} is not allowed; allowed: a number from 1")
            batch = agreed(self.given, "run.batch", self.settings.run.batch, int(batch_size), "--batch_size")
            changes.append(f"run.batch={batch}")
        if device is not None and self.reads_device:
            here = self.settings.backend.get("device")
            agreed(self.given, "backend.device", here, device, "--device")
            changes.append(f"backend.device={quoted(device)}")
        return changes

    # continuing a text

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """One text a request, cut at its first `until`, in the order of the requests."""
        found: dict[int, str] = {}
        for (task, arguments, _), members in _groups(requests).items():
            texts = self._continued(task, json.loads(arguments), members)
            for (instance, places), of_one in zip(members, texts, strict=True):
                for place, text in zip(places, of_one, strict=True):
                    found[place] = text
                    self.cache_hook.add_partial("generate_until", instance.args, text)
        return [found[place] for place in range(len(requests))]

    def _continued(self, task: str, arguments: Mapping[str, Any], members: Sequence[Any]) -> list[list[str]]:
        """The texts of each request of a group, by a run of its own."""
        asked = generating(arguments, task)
        changes = [*self.changes, *asked.changes(self.settings.decoder, self.given, task)]
        instances = [instance for instance, _ in members]
        named = _requests(task, instances)
        folder = Path(self.settings.run.out).expanduser() / "lm_eval"
        path = write_requests(folder, task, named, asked.stop)
        changes += ["task=requests", f"task.source={quoted(path)}"]
        repeats = len(members[0][1])
        changes += [f"task.samples={repeats}"] if repeats > 1 else []
        with _command_line([*self.given, *changes]) as words:
            result = run_here(composed(words), is_alone=True, kept=self.kept)
        self.done.append(Continued(task, result.folder, named, instances))
        warn_of_failed(task, result.folder)
        return texts_of(result.folder, len(members), repeats, asked.stop)

    # chat

    @cached_property
    def codec(self) -> Codec:
        """Makes text of messages. Raises CheckpointError."""
        model = self.config.model
        assert model.path is not None
        folder = locate(model.path, model.revision, weights=False)
        return Codec(load_tokenizer(folder), template=model.chat_template_kwargs)

    @property
    def tokenizer_name(self) -> str:
        """For lm-eval's cache of requests."""
        return str(self.config.model.path).replace("/", "__")

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The model's own template, which is the only one. Raises ConfigError for another name."""
        if isinstance(chat_template, str):
            raise ConfigError(
                f"--apply_chat_template {chat_template} is not allowed; allowed: --apply_chat_template without a name: "
                "a checkpoint's own template is used"
            )
        return self.codec.tokenizer.chat_template if chat_template else None

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Messages as the text that the model is given; without a generation prompt the last message is gone on with.
        Raises CheckpointError.
        """
        how = {"add_generation_prompt": add_generation_prompt, "continue_final_message": not add_generation_prompt}
        return self.codec.apply_template(chat_history, **how)

    # likelihood

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """The bound of each continuation, and whether greedy decoding gives it. Raises ConfigError if none was asked
        for.
        """
        if self.bound is None:
            raise ConfigError(why_not("loglikelihood"))
        found = []
        for instance in requests:
            found.append(self.bound.of(self.config, *instance.args))
            self.cache_hook.add_partial("loglikelihood", instance.args, found[-1])
        return found

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """The bound of each whole text. Raises ConfigError if none was asked for, or a text is too long."""
        if self.bound is None:
            raise ConfigError(why_not("loglikelihood_rolling"))
        found = []
        for instance in requests:
            found.append(self.bound.of_text(self.config, instance.args[0]))
            self.cache_hook.add_partial("loglikelihood_rolling", instance.args, found[-1])
        return found

    def get_model_info(self) -> dict[str, Any]:
        """What stands in the `config` of lm-eval's results (0.4.10 and later)."""
        return {NAME: summary(self)}


def _groups(requests: Sequence[Any]) -> dict[tuple[str, str, int], list[tuple[Any, list[int]]]]:
    """Requests that one run can answer: of one task, with the same arguments and the same number of repeats; each with
    its places in the list.
    """
    places: dict[int, list[int]] = {}
    for place, instance in enumerate(requests):
        places.setdefault(id(instance), []).append(place)
    groups: dict[tuple[str, str, int], list[tuple[Any, list[int]]]] = {}
    for of_one in places.values():
        instance = requests[of_one[0]]
        arguments = json.dumps(instance.args[1], sort_keys=True)
        key = (instance.task_name or "requests", arguments, len(of_one))
        groups.setdefault(key, []).append((instance, of_one))
    return groups


def _requests(task: str, instances: Sequence[Any]) -> list[Request]:
    """Each with an id that says which document it is of; one that lm-eval does not number is numbered here."""
    found: dict[str, Request] = {}
    for number, instance in enumerate(instances):
        id = f"{task}-{instance.doc_id}" + (f"-{instance.idx}" if instance.idx else "")
        if instance.doc_id is None or id in found:
            id = f"{task}-request-{number}"
        origin = {"task": instance.task_name, "doc_id": instance.doc_id, "idx": instance.idx}
        found[id] = Request(id, instance.args[0], origin)
    return list(found.values())


@contextmanager
def _command_line(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """Within, this process was started by the command that does the same run without lm-eval, as its row will say."""
    before = sys.argv
    sys.argv = ["lopa_bench", *words]
    try:
        yield words
    finally:
        sys.argv = before
