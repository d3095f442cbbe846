"""Settings of a task are checked before anything is loaded."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.gsm8k.task import Gsm8k
from tasks.own import prompt_of
from tasks.registry import TASKS, make_task
from tasks.types import TaskConfig, TaskError


def test_a_task_is_made_by_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({"question": "How many?", "answer": "#### 1"}))
    task = make_task(TaskConfig(name="gsm8k", source=str(path), shots=0), embedded_default=True)
    assert isinstance(task, Gsm8k)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "gsm8"}, "task 'gsm8' is unknown, allowed: gsm8k, math, math500, mbpp"),
        ({"limit": 0}, "task.limit=0 is not allowed: an integer >= 1"),
        ({"limit": -3}, "limit=-3 is not allowed: an integer >= 1"),
        ({"limit": True}, "limit=True is not allowed"),
        *(
            ({"rows": rows}, f"task.rows={rows!r} is not allowed; allowed: FIRST-LAST or FIRST- with 1 <= FIRST")
            for rows in ("0-5", "5-4", "-5", "150", "1:150", "1-2-3", " 1-2", "1-2 ", "٣-٤", "", 3, True)
        ),
        ({"rows": "400-501"}, "task.rows=400-501: task=gsm8k has 500 problems; allowed: FIRST-LAST"),
        ({"rows": "501-"}, "task.rows=501-: task=gsm8k has 500 problems; allowed: FIRST-LAST"),
        ({"shots": -1}, "task.shots=-1 is not allowed: an integer >= 0"),
        ({"source": ""}, "task.source is empty, allowed: auto, embedded, hub or a path"),
        ({"shots_style": "random"}, "task.shots_style='random' is unknown, allowed: keyed, lm_eval"),
        (
            {"prompt_style": "cat"},
            "task.prompt_style='cat' is unknown, allowed: auto, chat, plain, lm_eval, lm_eval_turn, ",
        ),
        ({"scorer": "mine"}, "task.scorer='mine' is unknown, allowed: lopa_bench, lopa_bench_strict, lm_eval_strict"),
    ],
)
def test_a_wrong_setting_is_named_with_the_allowed_ones(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        make_task(TaskConfig(**settings), embedded_default=True)


def test_importing_the_registry_loads_nothing_heavy() -> None:
    heavy = ["torch", "datasets", "sympy", "math_verify", "transformers", "lopa_bench", "pyarrow"]
    code = f"import sys, tasks.registry, tasks.gsm8k.task; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_every_task_has_its_yaml() -> None:
    import yaml

    folder = Path(__file__).parents[1] / "conf" / "task"
    for name in ("gsm8k", "math", "math500"):
        settings = yaml.safe_load((folder / f"{name}.yaml").read_text())
        assert name in TASKS
        assert TaskConfig(**settings) == TaskConfig(name=name)


# --- a task of one's own

OWN = '''
from pathlib import Path

from tasks.types import Problem, Prompt, Score, Source

from tasks.base import Task
from tasks.sources.fields import TEXT
from tasks.sources.split import Split


class Capitals(Task):
    split = Split("Capitals", {"country": TEXT, "capital": TEXT}, embedded=str(Path(__file__).with_name("rows.jsonl")))
    prompt_styles = ("plain", "shouted")
    scorers = ("contains", "equals")
    most_shots = 2
    stop = ("\\n",)

    def problem(self, number, row):
        return Problem(f"capital-{number}", f"The capital of {row['country']} is", row["capital"], row)

    def prompt(self, problem):
        examples = "".join(f"{p.question} {p.gold}. " for p in self.in_source[:self.shots])
        text = examples + problem.question
        return Prompt(text.upper() if self.prompt_style == "shouted" else text)

    def score(self, problem, completion):
        found = problem.gold == completion.strip() if self.scorer == "equals" else problem.gold in completion
        return Score(found, "ok", completion)


class Plain(Task):
    """With a constructor of its own that looks at no setting."""

    name = "plain_rows"

    def __init__(self, config, embedded_default):
        self.name, self.scorer, self.stop = config.name, "mine", ()
        self.source = Source("file", "mine", "0" * 64, 20)
        self.problems = [Problem(str(i), f"{i}?", str(i), {}) for i in range(20)]

    def prompt(self, problem):
        return Prompt(problem.question)

    def score(self, problem, completion):
        return Score(completion == problem.gold, "ok")


class Twice(Plain):
    def __init__(self, config, embedded_default):
        super().__init__(config, embedded_default)
        self.problems[7] = self.problems[3]


class Blank(Plain):
    def __init__(self, config, embedded_default):
        super().__init__(config, embedded_default)
        del self.source


class OneString(Plain):
    def __init__(self, config, embedded_default):
        super().__init__(config, embedded_default)
        self.stop = "\\n"


class Gsm8kAgain(Plain):
    name = "gsm8k"


class Unfinished(Task):
    def prompt(self, problem):
        return Prompt(problem.question)


function = len
'''
COUNTRIES = (("Peru", "Lima"), ("Chad", "N'Djamena"), ("Laos", "Vientiane"))


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module with tasks of a user, beside its rows."""
    (tmp_path / "own_tasks.py").write_text(OWN)
    rows = [json.dumps({"country": country, "capital": capital}) for country, capital in COUNTRIES]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "failing.py").write_text("raise RuntimeError('no luck')")
    (tmp_path / "needing.py").write_text("import a_library_that_is_not_here")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "own_tasks"
    sys.modules.pop("own_tasks", None)


def make(target: str, **settings: Any) -> Any:
    return make_task(TaskConfig(target=target, **settings), embedded_default=True)


def test_a_task_of_ones_own_has_every_setting_that_it_names(own: str) -> None:
    made = make(f"{own}:Capitals", limit=2, shots=1, prompt_style="shouted", scorer="equals")
    assert [problem.gold for problem in made.problems] == ["Lima", "N'Djamena"]
    assert made.prompt(made.problems[1]).text == "THE CAPITAL OF PERU IS LIMA. THE CAPITAL OF CHAD IS"
    assert [made.score(made.problems[0], text).correct for text in ("Lima", "It is Lima")] == [True, False]
    assert (made.scorer, made.source.kind, made.source.name, made.source.rows) == ("equals", "embedded", "Capitals", 3)
    plain = make(f"{own}:Capitals")
    assert (plain.prompt_style, plain.shots, plain.scorer, len(plain.problems)) == ("plain", 0, "contains", 3)


def test_its_name_is_the_one_that_it_was_given_or_that_of_its_class(own: str) -> None:
    assert make(f"{own}:Capitals", name="cities").name == "cities"
    assert make(f"{own}:Capitals").name == "capitals"
    assert make(f"{own}:Plain").name == "plain_rows"


def test_rows_and_limit_hold_for_a_constructor_that_looks_at_no_setting(own: str) -> None:
    assert [problem.id for problem in make(f"{own}:Plain", limit=3).problems] == ["0", "1", "2"]
    assert [problem.id for problem in make(f"{own}:Plain", rows="2-4", limit=2).problems] == ["1", "2"]


def test_two_splits_are_the_whole_asked_in_the_same_words() -> None:
    whole, *splits = (
        make_task(TaskConfig(shots=2, rows=rows), embedded_default=True) for rows in (None, "1-150", "151-")
    )
    asked = [(problem.id, task.prompt(problem)) for task in splits for problem in task.problems]
    assert asked == [(problem.id, whole.prompt(problem)) for problem in whole.problems]
    assert [len(task.problems) for task in splits] == [150, 350]
    assert make_task(TaskConfig(rows="151-", limit=1), embedded_default=True).problems == whole.problems[150:151]


@pytest.mark.parametrize(
    ("target", "settings", "message"),
    [
        ("own_tasks:Capitals", {"prompt_style": "bogus"}, "prompt_style='bogus' is unknown, allowed: plain, shouted"),
        ("own_tasks:Capitals", {"shots": 3}, "task.shots=3: task=capitals has 2 fixed examples; allowed: at most 2"),
        ("own_tasks:Capitals", {"scorer": "x"}, "task.scorer='x' is unknown, allowed: contains, equals, null"),
        ("own_tasks:Capitals", {"shots_style": "lm_eval"}, "shots_style='lm_eval' has no meaning for task=capitals"),
        ("own_tasks:Capitals", {"limit": 0}, "task.limit=0 is not allowed: an integer >= 1"),
        ("own_tasks:Plain", {"prompt_style": "bogus"}, "task=plain_rows, which reads no prompt_style; allowed: auto"),
        ("own_tasks:Plain", {"shots": 7}, "task.shots=7: task=plain_rows has no examples; allowed: at most 0"),
        ("own_tasks:Plain", {"scorer": "mine"}, "task=plain_rows, which reads no scorer; allowed: null"),
        ("own_tasks:Twice", {}, "mine, rows 4 and 8 have the same id: 3"),
        ("own_tasks:Blank", {}, "task.target=own_tasks:Blank: source is None; allowed: a tasks.types.Source"),
        ("own_tasks:OneString", {}, r"own_tasks:OneString: stop is '\\n'; allowed: a tuple of texts"),
        ("own_tasks:Gsm8kAgain", {}, "is named gsm8k, as a task of this package; allowed: a name of its own"),
        ("own_tasks:Unfinished", {}, "task.target=own_tasks:Unfinished lacks what a task must have: score"),
        ("own_tasks:function", {}, "own_tasks:function is a builtin_function_or_method; allowed: a subclass"),
        ("own_tasks:Path", {}, "task.target=own_tasks:Path is the class Path; allowed: a subclass of tasks.base.Task"),
        ("own_tasks:Missing", {}, "task.target=own_tasks:Missing cannot be loaded .*allowed: module:Class"),
        ("own_tasks", {}, "task.target=own_tasks cannot be loaded .*allowed: module:Class"),
        ("", {}, "task.target= cannot be loaded"),
        ("nowhere:Task", {}, "No module named 'nowhere'.; allowed: module:Class"),
        ("needing:Task", {}, "No module named 'a_library_that_is_not_here'"),
        ("broken:Task", {}, "broken:Task cannot be loaded .SyntaxError: invalid syntax"),
        ("failing:Task", {}, "failing:Task cannot be loaded .RuntimeError: no luck"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("own")
def test_what_a_task_of_ones_own_does_not_read_is_refused(target: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message) as caught:
        make(target, **settings)
    assert "\n" not in str(caught.value)


def first_prompt(target: str) -> Any:
    task = make(target)
    return prompt_of(task, task.problems[0], target)


OWN_FAULTS = [  # the body of a class, and what is said of it
    ("prompt = None", "prompt is None; allowed: a method"),
    ("prompt_styles = 'question'", "prompt_styles is 'question'; allowed: a tuple of texts"),
    ("libraries = 'numpy'", "libraries is 'numpy'; allowed: a tuple of texts"),
    ("stop = ('',)", "stop is ('',); allowed: a tuple of texts that are not empty"),
    ("stop = (1,)", "stop is (1,); allowed: a tuple of texts"),
    ("most_shots = '2'", "most_shots is '2'; allowed: an integer >= 0, or None"),
    ("name = ''", "name is ''; allowed: text that is not blank"),
    ("def __init__(self, *_): super().__init__(*_); self.problems = None", "problems is None; allowed: a list"),
    ("def __init__(self): pass", "fails as it is made (TypeError: "),
    ("def load(self): return 5, Source('file', 'm', '0', 1)", "fails as it is made (TypeError: 'int' object"),
    ("def load(self): return [{}], Source(1, 'm', '0', 1)", "source.kind is 1; allowed: text"),
    ("def load(self): return [{}], Source('file', 'm', None, 1)", "source.sha256 is None; allowed: text"),
    ("def problem(self, number, row): return row['q']", "(KeyError: 'q', in faulty.py, line 4)"),
    ("def problem(self, number, row): pass", "mine, row 1: its problem is None; allowed: a tasks.types.Problem"),
    ("def problem(self, number, row): return Problem(number, 'q', 'g', row)", "mine, row 1: the problem's id is 0;"),
    ("def problem(self, number, row): return Problem('1', 'q', 'g', None)", "row of problem 1 is None; allowed"),
    ("def arrange(self, problems): pass", "fails as it is made (TypeError: "),
    ("def prompt(self, problem): return problem.question", "prompt of m-0 is 'q'; allowed: a tasks.types.Prompt"),
    ("def prompt(self, problem): pass", "prompt of m-0 is None; allowed: a tasks.types.Prompt"),
    ("def prompt(self, problem): return problem.nothing", "fails as it makes the prompt of m-0 (AttributeError: "),
    ("def prompt(self): return Prompt('q')", "fails as it makes the prompt of m-0 (TypeError: "),
    ("def prompt(self, problem): return Prompt('')", "text of the prompt of m-0 is ''; allowed: text"),
    ("def prompt(self, problem): return Prompt('\\ud800')", "it holds half a character (U+D800)"),
    ("def prompt(self, problem): return Prompt('q', 'q')", "messages of the prompt of m-0 is 'q'; allowed: None, or"),
    ("def prompt(self, problem): return Prompt('q', ({'content': 'q'},))", "allowed: {'role': text, 'content': text}"),
    ("def prompt(self, problem): raise ValueError('two\\nlines')", "(ValueError: two lines, in faulty.py, line 4)"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "message"), OWN_FAULTS)
def test_a_fault_of_ones_own_task_is_one_sentence_that_names_it(
    body: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"""from tasks.base import Problem, Prompt, Score, Source, Task

class Faulty(Task):
    {body}

class Right(Task):
    def load(self): return [{{}}], Source("file", "mine", "0", 1)
    def problem(self, number, row): return Problem(f"m-{{number}}", "q", "g", row)
    def prompt(self, problem): return Prompt("q")
    def score(self, problem, completion): return Score(True, "ok")

class Mine(Faulty, Right): pass
"""
    (tmp_path / "faulty.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "faulty", raising=False)
    with pytest.raises(TaskError) as caught:
        first_prompt("faulty:Mine")
    sys.modules.pop("faulty", None)
    assert message in str(caught.value)
    assert "faulty:Mine" in str(caught.value) or "mine, row 1" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "humaneval", "shots_style": "lm_eval"}, "task=humaneval, which reads no shots_style; allowed: keyed"),
        ({"name": "math", "shots_style": "lm_eval"}, "task=math, which reads no shots_style; allowed: keyed"),
        ({"name": "gsm8k", "shots_style": "lm_eval"}, "task.shots_style=lm_eval has no meaning with no examples"),
        ({"name": "gsm8k", "shots_style": "lm_eval", "prompt_style": "lm_eval_cot"}, "no meaning with fixed examples"),
        ({"name": "humaneval", "shots": 1}, "task.shots=1: task=humaneval has no examples; allowed: at most 0"),
        ({"name": "gsm8k", "limit": 2**63}, f"task.limit={2**63} is not allowed"),
        ({"name": "gsm8k", "shots": 2**64}, f"task.shots={2**64} is not allowed"),
    ],
)  # fmt: skip
def test_a_setting_that_nothing_reads_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=re.escape(message)):
        make_task(TaskConfig(**settings), embedded_default=True)


def test_every_hint_names_a_setting_as_it_is_written() -> None:
    """`source=...` alone is no setting of the command line: what a message says must be accepted as it stands."""
    names = "|".join(name for name in TaskConfig.__dataclass_fields__ if name != "name")
    bare = re.compile(rf"(?<![.\w`])(?:{names})=")
    for path in sorted((Path(__file__).parents[1] / "tasks").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "TaskError":
                texts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
                wrong = [text for text in texts if isinstance(text, str) and bare.search(text)]
                assert not wrong, f"{path.name}, line {node.lineno}: {wrong}"
