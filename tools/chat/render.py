"""Golden renderings of chat templates, by transformers itself.

render.py TEMPLATES OUT: every *.jinja of the directory TEMPLATES with every case of packages/transformers/test/chat/cases.json,
and every template of constructs.json there, as JSON: {"templates": {name: {case: text}}, "constructs": [text]}, where a failure is
{"error": message}. The date is fixed, special tokens are <s> and </s>. For the committed goldens:

render.py packages/transformers/test/chat/templates packages/transformers/test/chat/golden.json
"""

import copy
import datetime
import json
import pathlib
import sys

import transformers.utils.chat_template_utils as chat

HERE = pathlib.Path(__file__).resolve().parents[2] / "packages/transformers/test/chat"


class FixedDate(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 1, 2, 15, 4, 5)


def render(template, case, tools):
    case = copy.deepcopy(case)
    try:
        [text], _ = chat.render_jinja_template(
            [case["messages"]],
            tools=copy.deepcopy(tools.get(case.get("tools"))),
            chat_template=template,
            add_generation_prompt=case.get("add_generation_prompt", True),
            bos_token="<s>",
            eos_token="</s>",
            **case.get("variables", {}),
        )
        return text
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main():
    templates, out = map(pathlib.Path, sys.argv[1:3])
    chat.datetime = FixedDate
    cases = json.loads((HERE / "cases.json").read_text())
    tools = json.loads((HERE / "tools.json").read_text())
    constructs = json.loads((HERE / "constructs.json").read_text())
    msgs = {"messages": [], "variables": {"msgs": [{"role": "user", "content": "hi"}, {"role": "tool", "content": "r"}]}}
    renderings = {
        path.stem: {name: render(path.read_text(), case, tools) for name, case in cases.items()}
        for path in sorted(templates.glob("*.jinja"))
    }
    golden = {"templates": renderings, "constructs": [render(text, msgs, {}) for text in constructs]}
    out.write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n")


main()
