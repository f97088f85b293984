#!/usr/bin/env python3
# Makes tests/golden/chat/templates.json with the PyPI package jinja2: small templates of our own,
# conversations, and Jinja's output with the settings of transformers. With this file the test of
# tools/files/chat needs no Python, and Jinja itself is the judge.
#   make_template_goldens.py                       writes the goldens
#   make_template_goldens.py --real OUT FILE...    writes cases of other projects' templates, each with many
#       conversations, to OUT; they do not enter the repository. To judge them:
#       TEMPLATE_CASES=OUT build/tests/interfaces/texts/chat_template_test --gtest_filter='*Jinja*'
import datetime
import json
import os
import random
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

kGolden = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "chat", "templates.json")
kToday = "2024-07-26"
kBegin, kEnd = "\ue000", "\ue001"  # enclose the content of {% generation %}; no case contains them otherwise


class Generation(jinja2.ext.Extension):
  tags = {"generation"}

  def parse(self, parser):
    line = next(parser.stream).lineno
    body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
    return jinja2.nodes.CallBlock(self.call_method("mark"), [], [], body).set_lineno(line)

  def mark(self, caller):
    return kBegin + caller() + kEnd


def environment(today):
  def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)

  def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

  made = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"])
  made.filters["tojson"] = tojson
  made.globals["raise_exception"] = raise_exception
  if today:
    made.globals["strftime_now"] = lambda form: datetime.datetime.fromisoformat(today).strftime(form)
  return made


def case(name, template, conversation, add_generation_prompt=False, today=kToday):
  """Returns the case with Jinja's output, text and marks, or with its refusal."""
  one = {"name": name, "template": template, "conversation": conversation, "add_generation_prompt": add_generation_prompt, "today": today}
  try:
    variables = {"tools": None, "documents": None, **conversation}
    text = environment(today).from_string(template).render(**variables, add_generation_prompt=add_generation_prompt,
                                                           bos_token="<s>", eos_token="</s>")
  except Exception as error:
    return {**one, "refused": type(error).__name__}
  plain, marks = "", []
  for c in text:
    if c == kBegin:
      marks.append([len(plain.encode())])
    elif c == kEnd:
      marks[-1].append(len(plain.encode()))
    else:
      plain += c
  return {**one, "text": plain, "generated": marks}


def undated_case(name, template, conversation, add_generation_prompt=False):
  """Returns a case without a date: strftime_now is not defined, or fixed if the template calls it
  unconditionally."""
  calls = "strftime_now(" in template and "strftime_now is defined" not in template
  return {**case(name, template, conversation, add_generation_prompt, today="2024-07-26" if calls else None), "today": None}


# ---- templates of our own: one or two features of the language each

kChat = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "  Hé, wörld \n"},
                      {"role": "assistant", "content": "Hello\n<b>&\"quotes\"</b>"}, {"role": "user", "content": "日本語?"},
                      {"role": "assistant", "content": "はい。"}]}
kTools = {"messages": [{"role": "user", "content": "Add"},
                       {"role": "assistant", "content": None,
                        "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"b": 2, "a": 1.5, "deep": {"x": [True, None, "é\n\u0001"]}}}}]},
                       {"role": "tool", "content": "3.5"}],
          "tools": [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}, "list": []}}}]}

kTemplates = {
    # white space
    "plain": "no tag at all\n",
    "empty": "",
    "one newline goes": "a\n\n",
    "carriage returns": "a\r\nb\rc{{ 'x\r\ny' }}\r\n",
    "trim blocks": "{% if true %}\na\n{% endif %}\nb\n",
    "lstrip blocks": "  a\n  {% if true %}\n  b\n  {% endif %}\n\t{# c #}\nd",
    "not before a print": "  {{ 1 }}\n  {{- 2 }}\n  {{ 3 -}}  \n  4",
    "minus": "a  {%- if true -%}  b  {%- endif -%}  c",
    "plus": "  {%+ if true +%}\n  b\n  {%+ endif %}\nc",
    "comments": "a {#- c -#} b {# {{ x }} #} c\n{# one #}\n{#+ two #}\nd",
    "wide white space": "a\u2003{%- if true %}\u00a0\n\u2003{% endif %}b",
    "text before a block": "x {% if true %}y{% endif %} z",
    "two blocks on a line": "  {% if true %}  {% if true %}\na{% endif %}{% endif %}\n",
    "tag over lines": "{% if\n true\n%}\na{{\n1\n}}\n{% endif %}",
    "braces": "{ {{ '}}' }} } {{ {'a': {'b': 1}}['a']['b'] }} {{ '{%' }}{{ \"%}\" }}",
    # strings and numbers
    "escapes": r"""{{ 'a\n\t\\\'\"\x41\u00e9\101\q' }}{{ "it's" }}{{ 'say "x"' }}{{ '\U0001F600' }}""",
    "strings side by side": "{{ 'a' 'b' \"c\" }}",
    "numbers": "{{ 1 }} {{ -2 }} {{ 1.5 }} {{ 1.0 }} {{ 100000000000000000.0 }} {{ 0.00001 }} {{ 12345.678 }} {{ 0.1 + 0.2 }} {{ +3 }}",
    "arithmetic": "{{ 7 + 2 * 3 }} {{ (7 + 2) * 3 }} {{ 7 - 2 - 1 }} {{ 7 / 2 }} {{ 8 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 7 % 2.5 }} {{ 2 * 1.5 }}",
    "booleans count": "{{ true + true }} {{ true == 1 }} {{ false < true }} {{ 1 == 1.0 }}",
    "text times": "{{ 'ab' * 3 }}{{ 2 * 'c' }}{{ 'x' * -1 }}",
    "printed values": "{{ true }} {{ false }} {{ none }} {{ None }} {{ nothing }} {{ True }}",
    "tilde": "{{ 1 ~ 'a' ~ none ~ true ~ 1.5 ~ nothing }}{{ 1 + 2 ~ 3 }}",
    # comparison and logic
    "comparisons": "{{ 1 < 2 }} {{ 2 <= 2 }} {{ 3 > 4 }} {{ 3 >= 3 }} {{ 1 != 2 }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ 'a' == 1 }} {{ none == none }}",
    "deep equality": "{{ [1, [2]] == [1, [2.0]] }} {{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} {{ [1] != [1, 2] }}",
    "in": "{{ 'a' in 'cab' }} {{ 'x' not in 'cab' }} {{ 1 in [1, 2] }} {{ 'k' in {'k': 1} }} {{ 1 in {'k': 1} }} {{ '' in 'a' }} {{ not 'a' in ['a'] }}",
    "and or": "{{ 0 or 'x' }} {{ 'a' and 'b' }} {{ '' and 'b' }}|{{ none or false }} {{ not 1 }} {{ not not 'a' }} {{ 1 and 0 or 2 }}",
    "conditional": "{{ 'a' if true else 'b' }}{{ 'a' if false else 'b' }}{{ 'a' if false }}{{ 1 if 0 else 2 if 0 else 3 }}{{ ('x' if true else 'y') ~ 'z' }}",
    # values
    "lists": "{{ [1, 2, 3][0] }}{{ [1, 2, 3][-1] }}{{ [1, 2, 3,] | length }}{{ [[1], [2, 3]][1][1] }}{{ ([1] + [2]) | length }}{{ [][5] is defined }}",
    "mappings": "{{ {'a': 1}.a }}{{ {'a': 1}['a'] }}{{ {'a': 1}.b is defined }}{{ {'items': 3}['items'] }}{{ {'a': 1, } | length }}{{ {'a': {'b': 2}}.a.b }}",
    "slices": "{{ 'héllo'[1:3] }}|{{ 'héllo'[::-1] }}|{{ 'héllo'[-3:] }}|{{ 'héllo'[:-1] }}|{{ 'héllo'[::2] }}|{{ [1,2,3,4][1:3] | join(',') }}|{{ [1,2,3][::-1] | join(',') }}|{{ 'abc'[5:] }}|{{ 'abc'[-9:2] }}|{{ 'abc'[2:0:-1] }}",
    "characters": "{{ 'héllo'[1] }}{{ 'héllo'[-1] }}{{ 'héllo' | length }}{{ 'abc'[9] is defined }}",
    "index by dot": "{{ messages.0.role }}{{ messages[1].role }}",
    "attributes": "{{ messages[0].role }}{{ messages[0]['content'] }}{{ messages[0].nothing is defined }}{{ messages[0]['nothing'] is none }}",
    # statements
    "for": "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }} {{ m.role }}\n{% endfor %}",
    "for else": "{% for x in [] %}a{% else %}none{% endfor %}{% for x in [1] %}a{% else %}none{% endfor %}{% for x in nothing %}a{% else %}none{% endfor %}",
    "for if": "{% for m in messages if m.role != 'system' %}{{ loop.index0 }}{{ m.role }}{{ loop.last }} {% endfor %}",
    "for over a mapping": "{% for k in {'b': 1, 'a': 2} %}{{ k }}{% endfor %}{% for k, v in {'b': 1, 'a': 2}.items() %}{{ k }}={{ v }};{% endfor %}",
    "for over text": "{% for c in 'hé!' %}{{ c }}.{% endfor %}",
    "for in for": "{% for a in [1, 2] %}{% set outer = loop %}{% for b in 'xy' %}{{ outer.index }}{{ loop.index }}{{ a }}{{ b }} {% endfor %}{{ loop.index }}{% endfor %}",
    "neighbours": "{% for x in [1, 2, 3] %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{{ loop.previtem }}{{ loop.nextitem }} {% endfor %}",
    "set does not leave a loop": "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}{{ x }}",
    "set leaves an if": "{% if true %}{% set x = 2 %}{% endif %}{{ x }}",
    "set hides messages": "{% set messages = messages[1:] %}{{ messages | length }}",
    "namespace": "{% set ns = namespace(a=1, found=false) %}{% for i in [1, 2, 3] %}{% set ns.a = ns.a + i %}{% set ns.found = true %}{% endfor %}{{ ns.a }}{{ ns.found }}{{ ns.b is defined }}",
    "if elif else": "{% for i in [1, 2, 3, 4] %}{% if i == 1 %}a{% elif i == 2 %}b{% elif i == 3 %}c{% else %}d{% endif %}{% endfor %}",
    "nested ifs": "{% if true %}{% if false %}a{% else %}b{% endif %}{% else %}c{% endif %}",
    # range
    "range": "{% for i in range(3) %}{{ i }}{% endfor %} {% for i in range(2, 5) %}{{ i }}{% endfor %} {% for i in range(5, -1, -2) %}{{ i }}{% endfor %} {% for i in range(0) %}a{% else %}none{% endfor %}{{ range(4, 2) | length }}",
    "range in expressions": "{{ range(10)[3] }}{{ range(10)[-1] }}{{ range(1, 4) | join(',') }}{{ 3 in range(3) }}{{ 2 in range(3) }}{{ range(true) | length }}{{ range(5)[::-1] | join }}{{ range(3) | first }}{{ range is defined }}",
    "backwards": "{% for i in range(messages | length - 1, -1, -1) %}{{ i }}{{ messages[i].role }} {% endfor %}",
    "range as a name": "{% set range = 3 %}{{ range }}",
    # macros
    "macro": "{% macro f(a, b='x') %}[{{ a }}{{ b }}]{% endmacro %}{{ f(1) }}{{ f(1, 2) }}{{ f(b=3, a=4) }}{{ f(5, b=6) }}{{ f() }}",
    "macro of messages": "{% macro turn(m) -%}\n  <{{ m.role }}>{{ m.content | trim }}\n{%- endmacro %}\n{% for m in messages %}\n{{ turn(m) }}\n{% endfor %}{{ turn(messages[0]) | length }}",
    "macro sees the outermost names": "{% set x = 1 %}{% macro f() %}{{ x }}{{ y }}{{ messages[0].role }}{% endmacro %}{{ f() }}{% set x = 2 %}{{ f() }}{% set y = 3 %}{{ f() }}",
    "macro sees no loop": "{% macro f() %}{{ loop is defined }}{{ i is defined }}{% endmacro %}{% for i in [1] %}{{ f() }}{% endfor %}",
    "macro keeps its names": "{% macro f(x) %}{% set z = x %}{% set x = 9 %}{{ x }}{{ z }}{% endmacro %}{% set x = 1 %}{{ f(2) }}{{ x }}{{ z is defined }}",
    "macro calls itself": "{% macro f(n) %}{{ n }}{% if n > 0 %}({{ f(n - 1) }}){% endif %}{% endmacro %}{{ f(4) }}",
    "macro calls a later one": "{% macro f(n) %}<{{ g(n) }}>{% endmacro %}{% macro g(n) %}{{ n * 2 }}{% endmacro %}{{ f(4) }}",
    "macro's defaults": "{% set y = 7 %}{% macro f(a=y, b=a, c=[1, 2] | length) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ f() }}{{ f(1) }}{{ f(c=1) }}{% set y = 8 %}{{ f(b=2) }}",
    "macro's text": "{% macro f(a) %} {{ a }} {% endmacro %}{% set x = f('q') %}[{{ x }}][{{ x | trim }}][{{ f('<') + '>' }}][{{ f('b').strip().upper() }}]{{ f(1) is string }}",
    "macro in an if": "{% if true %}{% macro f() %}a{% endmacro %}{% else %}{% macro f() %}b{% endmacro %}{% endif %}{{ f() }}",
    "macro twice": "{% macro f() %}a{% endmacro %}{{ f() }}{% macro f() %}b{% endmacro %}{{ f() }}",
    "macro with a loop": "{% macro f(list, between=', ') %}{% for x in list %}{{ x }}{% if not loop.last %}{{ between }}{% endif %}{% endfor %}{% endmacro %}{% for m in messages %}{{ f([m.role, loop.index]) }};{% endfor %}{{ f(range(3), between='') }}",
    "macro with a namespace": "{% macro f(ns) %}{% set ns.n = ns.n + 1 %}{% endmacro %}{% set ns = namespace(n=0) %}{{ f(ns) }}{{ f(ns) }}{{ ns.n }}",
    "macro and a test": "{% macro f(x) %}{{ x is defined }}{% endmacro %}{{ f() }}{{ f(nothing) }}{{ f(none) }}{{ f is defined }}{{ g is defined }}{% if f %}y{% endif %}",
    "macro in generation": "{% macro f(m) %}{{ m.content }}!{% endmacro %}{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ f(m) }}{% endgeneration %}{% endif %}{% endfor %}",
    "loops count no depth": "{% for a in [1] %}{{ loop.depth }}{{ loop.depth0 }}{% for b in [1] %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}{% endfor %}",
    # filters, tests, methods
    "trim": "[{{ messages[1].content | trim }}][{{ 'xxaxx' | trim('x') }}][{{ '\u3000a\u00a0' | trim }}][{{ 5 | trim }}]",
    "filters bind first": "{{ 'a' + ' b ' | trim + 'c' }}{{ -3 | string ~ 1 }}{{ 1 + '22' | length }}",
    "strip": "[{{ '  a '.strip() }}][{{ '  a '.lstrip() }}][{{ '  a '.rstrip() }}][{{ '\\n\\na\\n'.lstrip('\\n') }}][{{ 'abcba'.strip('ab') }}][{{ '  '.strip() }}][{{ '  '.rstrip() }}][{{ 'éaé'.rstrip('é') }}]",
    "split": "{{ 'a</t>b</t>c'.split('</t>') | join('|') }} {{ 'a,b,c'.split(',', 1) | join('|') }} {{ '  a  b '.split() | join('|') }} {{ ''.split(',') | length }} {{ ''.split() | length }} {{ 'a b c'.split(None, 1) | join('|') }} {{ 'a,b'.split(',')[-1] }}",
    "starts": "{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith('ab') }}{{ ''.startswith('') }}",
    "letters": "{{ 'aB c-d1e'.upper() }}{{ 'aB' | lower }}{{ 'hello wORLD it\\'s 3x'.title() }}{{ 'ab' | upper }}",
    "replace": "{{ 'aXbXc'.replace('X', '--') }}{{ 'aXbXc'.replace('X', '', 1) }}{{ 'ab'.replace('', '.') }}{{ 'aXb' | replace('X', 'y') }}",
    "items": "{% for k, v in {'a': 1, 'b': none} | items %}{{ k }}{{ v }}{% endfor %}{% for k, v in nothing | items %}{% endfor %}{{ {'a': 1}.keys() | join }}{{ {'a': 1}.values() | join }}",
    "get": "{{ {'a': 1}.get('a') }}{{ {'a': 1}.get('b') }}{{ {'a': 1}.get('b', 'else') }}",
    "join": "{{ [1, 'a', none] | join(', ') }}{{ ['x'] | join }}{{ 'abc' | join('-') }}{{ [1, 2] | join(d='/') }}",
    "select": "{{ [1, 0, 2, ''] | select | join(',') }}{{ ['a', 'b'] | reject('equalto', 'a') | join }}{{ [1, 'a'] | select('string') | join }}{{ [1, 2] | reject('in', [2]) | join }}",
    "default": "{{ nothing | default('x') }}{{ '' | default('x') }}{{ '' | default('x', true) }}{{ none | default('y') }}{{ 0 | d('z', boolean=true) }}",
    "first and last": "{{ [1, 2] | first }}{{ [1, 2] | last }}{{ 'ab' | first }}{{ [] | first is defined }}",
    "length": "{{ 'é' | length }}{{ [1] | count }}{{ {} | length }}{{ nothing | length }}",
    "tests": "{% for x in [1, 1.5, 'a', true, none, [1], {'a': 1}] %}{{ x is string }}{{ x is number }}{{ x is integer }}{{ x is mapping }}{{ x is iterable }}{{ x is sequence }}{{ x is boolean }}{{ x is none }}{{ x is true }}{{ x is defined }} {% endfor %}",
    "tests of nothing": "{{ nothing is defined }}{{ nothing is undefined }}{{ nothing is none }}{{ nothing is iterable }}{{ nothing is string }}{{ nothing is not defined }}{{ not nothing is defined }}",
    "tests with arguments": "{{ 1 is equalto 1 }}{{ 1 is eq(2) }}{{ 'a' is in ['a'] }}{{ 3 is ne 4 }}{{ 1 is equalto 1 and 2 is equalto 2 }}{{ false is false }}",
    "tojson": "{{ 'é\"\\\\/<\\u0001\\n\\u007f' | tojson }}{{ [1, 2.5, true, none, {'b': [], 'a': {}}] | tojson }}{{ {'x': [1, {'y': 2}], 'z': {}} | tojson(indent=2) }}{{ [] | tojson(indent=4) }}",
    "strftime_now": "{{ strftime_now('%d %b %Y') }} {{ strftime_now('%Y-%m-%d %H:%M, %A %j %%') }}{{ strftime_now is defined }}",
    "tokens": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ unk_token is defined }}{{ tools is none }}",
    "generation": "{% for m in messages %}\n{{ m.role }}: \n{%- if m.role == 'assistant' %}\n    {%- generation %}\n{{ m.content }}<end>\n    {%- endgeneration %}\n{% else %}\n{{ m.content }}\n{%- endif %}\n{% endfor %}\n{% generation %}{% endgeneration %}",
    # Python refuses these
    "range of nothing": "{{ range() }}",
    "range of text": "{{ range('3') | length }}",
    "range without a step": "{{ range(1, 2, 0) | length }}",
    "range of too much": "{{ range(1000000) | length }}",
    "range by name": "{{ range(stop=3) | length }}",
    "macro with too much": "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}",
    "macro with another name": "{% macro f(a) %}{% endmacro %}{{ f(b=2) }}",
    "macro with one twice": "{% macro f(a) %}{% endmacro %}{{ f(1, a=2) }}",
    "macro before it is there": "{{ f(1) }}{% macro f(a) %}{% endmacro %}",
    "macro for ever": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "macro without end": "{% macro f() %}",
    "macro without a default": "{% macro f(a=1, b) %}{% endmacro %}",
    "macro without a name": "{% macro %}{% endmacro %}",
    "no such attribute": "{{ nothing.more }}",
    "no such element": "{{ nothing[0] }}",
    "element of nothing's element": "{{ messages[99]['role'] }}",
    "adds text and number": "{{ 'a' + 1 }}",
    "adds nothing": "{{ 'a' + nothing }}",
    "adds none": "{{ 'a' + none }}",
    "loops over a number": "{% for x in 5 %}{% endfor %}",
    "loops over none": "{% for x in none %}{% endfor %}",
    "length of none": "{{ none | length }}",
    "orders text and number": "{{ 'a' < 1 }}",
    "in a number": "{{ 1 in 5 }}",
    "number in text": "{{ 1 in 'a1' }}",
    "divides by zero": "{{ 1 / 0 }}{{ 1 // 0 }}{{ 1 % 0 }}",
    "raises": "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}",
    "unpacks too little": "{% for a, b in [[1]] %}{% endfor %}",
    "set of no namespace": "{% set x = {} %}{% set x.y = 1 %}",
    "method of none": "{{ none.strip() }}",
    "items of a list": "{{ [1].items() }}",
    "empty separator": "{{ 'a'.split('') }}",
    "slice of step 0": "{{ 'a'[::0] }}",
    "json of nothing": "{{ nothing | tojson }}",
    "tag without end": "{% if true ",
    "if without end": "{% if true %}a",
    "else of nothing": "{% else %}",
    "wrong end": "{% for x in [] %}{% endif %}",
    "bracket": "{{ (1 }}",
    "string without end": "{{ 'a }}",
    "no such filter": "{{ 1 | nonsense }}",
    "no such test": "{{ 1 is nonsense }}",
    "empty print": "{{ }}",
}


def own_cases():
  for name, template in kTemplates.items():
    yield case(name, template, kChat)
  chatml = ("{%- for m in messages %}\n    {%- if loop.first and m.role != 'system' %}\n        {{- '<|im_start|>system\\nHelp.<|im_end|>\\n' }}\n    {%- endif %}\n"
            "    {{- '<|im_start|>' + m.role + '\\n' }}\n    {%- if m.content is string %}\n        {{- m.content }}\n    {%- endif %}\n"
            "    {%- for call in m.tool_calls or [] %}\n        {{- '<call>' ~ (call.function | tojson) ~ '</call>' }}\n    {%- endfor %}\n"
            "    {{- '<|im_end|>\\n' }}\n{%- endfor %}\n{%- if tools %}\n    {{- tools | tojson(indent=4) }}\n{%- endif %}\n"
            "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n")
  for conversation in (kChat, kTools, {"messages": []}):
    for prompt in (False, True):
      yield case("chatml", chatml, conversation, prompt)
  parts = {"messages": [{"role": "user", "content": [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]}, {"role": "assistant", "content": "c"}]}
  of_parts = ("{%- macro text_of(content) -%}{%- if content is string -%}{{ content }}{%- else -%}{%- for part in content -%}{%- if part.type == 'text' -%}"
              "{{ part.text }}{%- endif -%}{%- endfor -%}{%- endif -%}{%- endmacro -%}{% for m in messages %}<{{ text_of(m.content) }}>{% endfor %}")
  yield case("parts", of_parts, parts)
  yield case("parts as text", of_parts, kChat)
  # A reply's thoughts appear in the text only after the last question, as in Qwen3's template.
  thinking = ("{%- set ns = namespace(last=messages | length - 1, looks=true) %}\n{%- for m in messages[::-1] %}\n    {%- set i = messages | length - 1 - loop.index0 %}\n"
              "    {%- if ns.looks and m.role == 'user' %}{%- set ns.looks = false %}{%- set ns.last = i %}{%- endif %}\n{%- endfor %}\n"
              "{%- for i in range(messages | length - 1, -1, -1) %}{% if loop.first %}{{ i }}:{% endif %}{% endfor %}"
              "{%- for m in messages %}\n{{- '<|s|>' + m.role + '\n' }}\n{%- if m.role == 'assistant' and loop.index0 > ns.last %}\n"
              "{{- '<think>\n' ~ (m.reasoning_content or '') ~ '\n</think>\n\n' }}\n{%- endif %}\n{{- m.content + '<|e|>\n' }}\n{%- endfor %}\n"
              "{%- if add_generation_prompt %}\n{{- '<|s|>assistant\n' }}\n{%- endif %}")
  for prompt in (False, True):
    yield case("thinking", thinking, kChat, prompt)
  yield case("no date", "{{ strftime_now is defined }}{% if not date is defined %}{% set date = '26 Jul' %}{% endif %}{{ date }}", kChat, today=None)
  yield undated_case("no date, asked", "{{ strftime_now('%d %B %Y, %A %j') }}", kChat)
  by_attribute = ("{% set asked = messages | selectattr('role', 'equalto', 'user') | list %}{{ asked | length }}{{ asked[-1].content }}"
                  "{{ messages | rejectattr('role', 'in', ['user', 'system']) | list | length }}{{ messages | selectattr('tool_calls') | list | length }}"
                  "{{ messages | selectattr('tool_calls', 'defined') | list | length }}{{ tools | tojson(ensure_ascii=False, indent=2) }}")
  yield case("by attribute", by_attribute, kChat)
  yield case("by attribute", by_attribute, kTools)


# ---- conversations for other projects' templates

kWords = ["hello", "Wörld", "日本", "😀", "<|im_end|>", "<think>", "</think>", "a b", "\n", "  ", "\"quoted\"", "{{ x }}", "{% if %}", "\\n", "1.5", "", "<tool_response>", "</tool_response>", "\t", "\u00a0"]


def random_text(draw):
  return draw.choice(["", " ", "\n"]) + "".join(draw.choice(kWords) + draw.choice(["", " ", "\n"]) for _ in range(draw.randrange(6))) + draw.choice(["", " ", "\n"])


def random_json(draw, depth=0):
  kind = draw.randrange(8 if depth < 3 else 5)
  if kind == 0: return random_text(draw)
  if kind == 1: return draw.randrange(-1000, 1000)
  if kind == 2: return round(draw.uniform(-10, 10), draw.randrange(1, 6))
  if kind == 3: return draw.choice([True, False])
  if kind == 4: return None
  if kind == 5: return [random_json(draw, depth + 1) for _ in range(draw.randrange(3))]
  return {draw.choice("abcxyz") + str(i): random_json(draw, depth + 1) for i in range(draw.randrange(3))}


def random_message(draw, role):
  message = {"role": role, "content": random_text(draw)}
  if role == "assistant" and draw.random() < 0.2:
    message["tool_calls"] = [{"type": "function", "function": {"name": "f", "arguments": {f"k{i}": random_json(draw) for i in range(draw.randrange(3))}}}
                             for _ in range(draw.choice([1, 1, 2]))]
    if draw.random() < 0.5: message["content"] = draw.choice([None, ""])
  if role == "assistant" and draw.random() < 0.2: message["reasoning_content"] = random_text(draw)
  if role == "tool" and draw.random() < 0.3: message["content"] = random_json(draw)
  return message


def random_conversation(draw):
  roles = ["system"] if draw.random() < 0.5 else []
  for _ in range(draw.randrange(4)):
    roles += ["user", "assistant"] + (["tool", "assistant"] if draw.random() < 0.2 else [])
  if draw.random() < 0.3: roles.append("user")
  if draw.random() < 0.1: draw.shuffle(roles)
  conversation = {"messages": [random_message(draw, role) for role in roles]}
  if draw.random() < 0.3: conversation["tools"] = [{"type": "function", "function": {"name": "f", "parameters": random_json(draw)}}]
  return conversation


def real_cases(files, count=150):
  for file in files:
    with open(file, newline="") as stream:
      template = stream.read()
    draw = random.Random(os.path.basename(file))
    for n in range(count):
      make = draw.choice([case, undated_case])
      yield make(f"{os.path.basename(file)} {n}", template, random_conversation(draw), draw.random() < 0.5)


def write(path, cases):
  with open(path, "w") as stream:
    stream.write("[\n" + ",\n".join(json.dumps(one, ensure_ascii=False, allow_nan=False) for one in cases) + "\n]\n")


if __name__ == "__main__":
  if sys.argv[1:2] == ["--real"]:
    write(sys.argv[2], real_cases(sys.argv[3:]))
  else:
    write(kGolden, own_cases())
