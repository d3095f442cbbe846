"""The number that a GSM8K completion gives, by our rules and by those of lm_eval."""

import json
import random
import re
import time
from pathlib import Path

import pytest

from tasks.gsm8k import lm_eval as lm_eval
from tasks.gsm8k.answers import flexible_answer, same_number, strict_answer
from tests.benchmark_files import GSM8K_TEST, GSM8K_TRAIN

NUMBERS = [  # completion, gold, flexible value, right
    ("#### 1,450.00", "1450", "1450", True),
    ("The answer is $18.", "18", "18", True),
    ("She now has 72 marbles, as required.", "72", "72", True),
    ("#### -5", "5", "-5", False),
    ("#### \u22125", "-5", "-5", True),
    ("So the result is \\boxed{42}.", "42", "42", True),
    ("**Answer: \\$2,125 per day.**", "2125", "2125", True),
    ("#### 3/4", "0.75", "0.75", True),
    ("#### 30 minutes (0.5 hours)", "30", "30", True),
    ("I cannot tell.", "4", None, False),
    ("2+3=5, so 5 x 4 = 20 apples. The 3 left over are eaten.", "20", "3", False),
    ("####18", "18", "18", True),
    ("#### 12.", "12", "12", True),
    ("80,000 + 50,000 = 130,000", "130000", "130000", True),
    ("", "4", None, False),
    ("#### $18", "18", "18", True),
    ("#### -$5", "-5", "-5", True),
    ("#### **18**", "18", "18", True),
    ("#### \n18", "18", "18", True),
    ("#### x = 18", "18", "18", True),
    ("#### 16 - 3 = 13", "13", "13", True),
    ("#### 2 * 8 = 16 - 3 = 13", "13", "13", True),
    ("#### 13 (as 16 - 3 = 13, and 10 + 3 = 13)", "13", "13", True),
    ("#### 30 (2 + 3 = 5)", "30", "30", True),
    ("#### 18\nCheck: 20 - 2 = 17", "18", "18", True),
    ("#### 1 1/2", "1.5", "1.5", True),
    ("#### 1/3", "1/3", "1/3", True),
    ("#### .5", "0.5", "0.5", True),
    ("#### 1e5", "100000", "100000", True),
    ("#### 25%", "25", "25", True),
    ("The answer is 18 since each of the 3 hens lays 6.", "18", "18", True),
    ("The final answer is 5 + 3 = 8", "8", "8", True),
    ("The answer is 5-18", "18", "5", False),
    ("That leaves 18 - 5", "5", "5", True),
    ("\\boxed{1{,}000}", "1000", "1000", True),
    ("\\boxed{\\frac{3}{4}}", "0.75", "0.75", True),
    ("\\boxed{1\\frac{1}{2}}", "1.5", "1.5", True),
    ("\\boxed{x = 42 \\text{ of } 50}", "42", "42", True),
    ("#### Step 1: Add\n3 + 4 = 7\n#### Step 2: Double\n**Answer: 14**", "14", "14", True),
    ("#### 1. Add the costs\n3 + 4 = 7 in all", "7", "7", True),
]


@pytest.mark.parametrize(("completion", "gold", "value", "right"), NUMBERS)
def test_flexible_value(completion: str, gold: str, value: str | None, right: bool) -> None:
    assert flexible_answer(completion) == value
    assert same_number(flexible_answer(completion), gold) is right


ANY_DASH = "-\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d\u00ad"
MINUS = "-\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d"


@pytest.mark.parametrize("dash", ANY_DASH, ids=lambda dash: f"U+{ord(dash):04X}")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18{}5", "5"),
        ("from 2010{}2015", "2015"),
        ("18 {}5", "5"),
        ("18 {} 5", "5"),
        ("18\u00a0{}5", "5"),
        ("$18{}$5", "5"),
        ("30%{}5%", "5"),
        ("30 % {}5 %", "5"),
        ("18€ {}5€", "5"),
        ("\\$18{}\\$5", "5"),
        ("(3 + 4){}5", "5"),
        ("2010{0}{0}2015", "2015"),
        ("2024{0}01{0}15", "15"),
        ("10:30{}11:15", "15"),
        ("call 555{0}123{0}4567", "4567"),
        ("5kg{}3kg", "3"),
        ("COVID{}19", "19"),
        ("3/4{}1/2", "0.5"),
    ],
)
def test_a_dash_behind_a_value_or_a_letter_is_no_sign(text: str, dash: str, value: str) -> None:
    assert flexible_answer(text.format(dash)) == value


@pytest.mark.parametrize("dash", MINUS, ids=lambda dash: f"U+{ord(dash):04X}")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{}5", "-5"),
        ("({}5)", "-5"),
        ("x ={}5", "-5"),
        ("It is {}5", "-5"),
        ("18\n{}5", "-5"),
        ("5 * {}3", "-3"),
        ("18 {0} {0}5", "-5"),
        ("**{}5**", "-5"),
        ("${}5", "-5"),
        ("{}$5.50", "-5.5"),
        ("#### {}1,000", "-1000"),
        ("{}3/4", "-0.75"),
        ("\\boxed{{{}\\frac{{3}}{{4}}}}", "-0.75"),
        ("\\boxed{{\\frac{{{}3}}{{4}}}}", "-0.75"),
        ("1.5e{}3", "0.0015"),
        ("5 \\times 10^{{{}3}}", "0.005"),
    ],
)
def test_a_minus_in_front_of_a_value_is_its_sign(text: str, dash: str, value: str) -> None:
    assert flexible_answer(text.format(dash)) == value


@pytest.mark.parametrize("space", [" ", "\u00a0", "\u2009", "\u202f"], ids=lambda space: f"U+{ord(space):04X}")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("The answer is 10{}000.", "10000"),
        ("#### 1{0}000{0}000", "1000000"),
        ("\\boxed{{12{}500}}", "12500"),
        ("$80{0}000 + $16{0}000 = $96{0}000.50", "96000.5"),
        ("-1{}000 points", "-1000"),
    ],
)
def test_a_space_may_part_thousands(text: str, space: str, value: str) -> None:
    assert flexible_answer(text.format(space)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 200 3", "3"),
        ("#### 1 200 3", "1"),
        ("3 1 200", "200"),
        ("2024 500", "500"),
        ("0 500", "500"),
        ("0.5 200", "200"),
        ("10:30 200", "200"),
        ("1,200 300", "300"),
        ("10  200", "200"),
        ("10\n200", "200"),
        ("1 200/400", "1.5"),
        ("10 2000", "2000"),
    ],
)
def test_a_space_between_other_numbers_parts_them(text: str, value: str) -> None:
    assert flexible_answer(text) == value


def test_an_empty_box_gives_nothing() -> None:
    assert flexible_answer("The answer is 5. In a box: \\boxed{}, found after 2 steps") == "5"
    assert flexible_answer("\\boxed{}") is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12/25/2024", "2024"),  # a date and no fraction
        ("3/4/5", "5"),
        ("5 × 10^3", "5000"),
        ("2.5·10²", "250"),
        ("5×10⁻³", "0.005"),
        ("1E3", "1000"),
        ("2e3x", "3"),
        ("10^3", "3"),
        ("#### 12345678901234567890123456789012345678.50", "12345678901234567890123456789012345678.5"),
        ("-0", "0"),
    ],
)
def test_other_forms_of_numbers(text: str, value: str) -> None:
    assert flexible_answer(text) == value


def test_a_long_number_is_compared_digit_by_digit() -> None:
    assert same_number("9" * 30 + ".0", "9" * 30)
    assert not same_number("9" * 30, "9" * 29 + "8")


@pytest.mark.parametrize("digits", [101, 700, 4300, 5000, 100_000])
@pytest.mark.parametrize(
    "form", ["{}", "-{}", "#### {}.5", "\\boxed{{{}}}", "The answer is {}", "1/{}", "{} 1/2", "1e{}"]
)
def test_a_number_of_any_length_has_a_verdict(form: str, digits: int) -> None:
    answer = flexible_answer(form.format("9" * digits))
    assert answer is not None
    assert same_number(answer, "18") is False
    assert same_number(answer, answer) is True


LONG = 60_000
ENDLESS = [
    *(
        "9",
        "9,",
        "1,111",
        "-",
        "$",
        "#",
        "####",
        "#### 1\n",
        "#### 1. A ",
        "answer ",
        "answer: ",
        "1+1=",
        "1+",
        "(",
        "1/",
    ),
    *(
        "\\frac{1",
        "\\boxed{",
        "\\boxed{1}",
        "1 ",
        "\n",
        "\n\nQ:",
        " ",
        "<think>",
        "</think>",
        "10⁹",
        "—",
        "{,}",
        "5 x 10^",
    ),
]


@pytest.mark.parametrize("piece", ENDLESS)
def test_reading_takes_time_in_proportion_to_the_length(piece: str) -> None:
    """Anything quadratic would take far longer at this length."""
    text = piece * (LONG // len(piece))
    begin = time.process_time()
    values = (strict_answer(text), flexible_answer(text), lm_eval.strict(text), lm_eval.flexible(text))
    for value in values[2:]:
        lm_eval.exact_match(value, "#### 18")
    assert time.process_time() - begin < 5


def test_a_phrase_never_beats_a_box_and_a_box_never_the_marker() -> None:
    assert flexible_answer("\\boxed{7}. Or the answer is 5, with 3 left.") == "7"
    assert flexible_answer("The answer is 5.\n\\boxed{7}") == "7"
    assert flexible_answer("#### 4\n\\boxed{7}. The answer is 5, or 3.") == "4"
    assert flexible_answer("The answer is 5, with 3 left.") == "5"


SEGMENTS = [  # completion, value
    ("#### 10\nThat forgets the tax.\n#### 12", "12"),
    ("#### 18\n\nQuestion: A shop keeps 7 hens.\nAnswer: 7\n#### 7", "18"),
    ("#### 18\nQuestion: A shop keeps 7 hens.\nAnswer: 7\n#### 7", "18"),
    ("Restating the Question: two bags of 12 are 24.\n#### 24", "24"),
    ("Question: two bags of 12?\n\nAnswer: 24\n#### 24", "24"),
    ("<think>Maybe #### 7, no.</think>\nTwo bags hold 24.\n#### 24", "24"),
    ("<think>First guess #### 7</think>#### 24<think>or 9?</think>", "24"),
    ("Maybe #### 7.</think>\n#### 24", "24"),
    ("#### 7</think>I cannot tell.", None),
    ("#### 7</think>", None),
    ("#### 7</think> No. #### 9</thinking>\n#### 24", "24"),
    ("<think>a<think>b</think>\n#### 24", "24"),
    ("<think>Two bags hold 24, so #### 24", None),
    ("<THINK>5</THINK>", None),
    ("#### 24\n<think>Or 25?", "24"),
]


@pytest.mark.parametrize(("completion", "value"), SEGMENTS)
def test_only_the_answer_to_the_asked_question_counts(completion: str, value: str | None) -> None:
    assert flexible_answer(completion) == value
    assert strict_answer(completion) == value


def test_strict_needs_the_marker() -> None:
    assert strict_answer("The answer is 18.") is None
    assert strict_answer("####18") == "18"


LM_EVAL = [  # completion, strict, flexible, strict right, flexible right; the gold is 18
    ("#### 18", "18", "18", True, True),
    ("#### 18.00", "18.00", "18.00", False, False),
    ("#### 18.", "18.", "18.", True, True),
    ("#### $18", "[invalid]", "$18", False, True),
    ("####18", "[invalid]", "18", False, True),
    ("5-18", "[invalid]", "-18", False, False),
    ("#### 18\nDone in 2 days", "18", "2", True, False),
    ("#### 10\n#### 18", "10", "18", False, True),
    ("I cannot tell.", "[invalid]", "[invalid]", False, False),
]


@pytest.mark.parametrize(("completion", "strict", "flexible", "strict_right", "flexible_right"), LM_EVAL)
def test_the_filters_of_lm_eval_with_their_faults(
    completion: str, strict: str, flexible: str, strict_right: bool, flexible_right: bool
) -> None:
    gold = "She makes 9 * 2 = $<<9*2=18>>18.\n#### 18"
    assert (lm_eval.strict(completion), lm_eval.flexible(completion)) == (strict, flexible)
    assert lm_eval.exact_match(strict, gold) is strict_right
    assert lm_eval.exact_match(flexible, gold) is flexible_right


def test_the_normalisation_of_lm_eval_is_that_of_its_regular_expressions() -> None:
    def published(text: str) -> str:
        for pattern in (",", r"\$", r"(?s).*#### ", r"\.$"):
            text = re.sub(pattern, "", text)
        return text.lower()

    draw = random.Random(0)
    signs = [",", "$", "#", "#### ", "####", " ", "\n", ".", "1", "A", "-"]
    for _ in range(3000):
        left, right = ("".join(draw.choices(signs, k=draw.randint(0, 8))) for _ in range(2))
        assert lm_eval.exact_match(left, right) is (published(left) == published(right)), (left, right)
        assert lm_eval.exact_match(left, published(left)) is (published(left) == published(published(left)))


def test_the_strict_cot_filter_of_lm_eval_wants_a_character_after_the_number() -> None:
    assert lm_eval.strict("The answer is 18.", cot=True) == "18"
    assert lm_eval.strict("The answer is 18", cot=True) == "1"
    assert lm_eval.strict("So it is 18.", cot=True) == "[invalid]"


@pytest.mark.data
@pytest.mark.parametrize(("file", "rows"), [(GSM8K_TEST, 1319), (GSM8K_TRAIN, 7473)], ids=["test", "train"])
def test_every_gold_answer_scores_right(file: Path, rows: int) -> None:
    answers = [json.loads(line)["answer"] for line in file.read_text().splitlines()]
    assert len(answers) == rows
    for answer in answers:
        gold = answer.rpartition("####")[2].replace(",", "").strip()
        assert same_number(strict_answer(answer), gold), answer
        assert same_number(flexible_answer(answer), gold), answer
