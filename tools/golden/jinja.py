#!/usr/bin/env python3
"""Writes tests/golden/jinja/*.json: templates, variables and what Jinja2 makes of them.

The environment is the one that transformers renders chat templates in. Needs Jinja2 3.1:
    python3 tools/golden/jinja.py tests/golden/jinja
"""
import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment

from jinja_families import FAMILIES, SCENARIOS


class Generation(jinja2.ext.Extension):
    """{% generation %} marks what the assistant says; rendering passes it through."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_pass"), [], [], body).set_lineno(line)

    def _pass(self, caller):
        return caller()


class Raised(jinja2.TemplateError):
    pass


def make_environment(kind):
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise Raised(message)

    def strftime_now(form):
        return datetime.datetime(2025, 1, 2, 3, 4, 5).strftime(form)

    env = kind(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


SANDBOX = make_environment(ImmutableSandboxedEnvironment)
MUTABLE = make_environment(SandboxedEnvironment)


def expect(env, template, variables):
    given = {"messages": [], "tools": None, "documents": None, "add_generation_prompt": False, **variables}
    try:
        return {"expected": env.from_string(template).render(**given)}
    except Raised as e:
        return {"raises": str(e)}
    except Exception:  # any other error: only that there is one has to agree
        return {"error": True}


VARIABLES = {
    "a": 7, "b": 3, "neg": -7, "f": 2.5, "s": "Hello, World", "u": "Grüße, 世界 🌍", "e": "", "n": None, "t": True,
    "l": [3, 1, 2], "ls": ["b", "A", "c"], "d": {"x": 1, "y": [1, {"z": None}], "items": "own"},
    "users": [{"name": "Bo", "age": 41, "tags": ["q"]}, {"name": "al", "age": 7}, {"name": "Cy", "age": 41, "tags": []}],
    "text": "  one two\n\tthree  \n", "lines": "first\nsecond\n\nfourth", "html": "<a href=\"x\">'&'</a>",
}  # fmt: skip

EXPRESSIONS = r"""
1 + 2 * 3 - 4
7 // 2
-7 // 2
7 % -3
-7 % 3
7.5 // 2
-7.5 % 2
2 ** 10
2 ** -1
-2 ** 2
2 ** 3 ** 2
7 / 2
6 / 3
1 / 0
1 % 0
1.0
1e3
1.5e-7
1e16
123456789012345680.0
0.1 + 0.2
1e22
100000.0 * 10
-0.0
1_000
0x1F
0b101
0o17
a + b
a - b
a * f
a == 7.0
a != b
1 < 2 < 3
1 < 3 < 2
a > b and b > 1
a > b or undefined_thing
not a
not n
n or "other"
e or "empty"
s and "full"
t + t
true + 1
true == 1
"a" < "b"
"a" < 1
n < 1
[1, 2] < [1, 3]
[1, 2] == [1, 2]
(1, 2) == [1, 2]
{"a": 1} == {"a": 1.0}
1 in l
4 not in l
"ell" in s
"x" in d
"zz" in d
1 in s
1 in 5
"a" in undefined_thing
a in [7]
not a in [7]
"a" ~ 1 ~ none ~ true ~ 2.0 ~ [1, "x"]
"a" + "b" * 3
3 * "ab"
"ab" * -1
[1] * 3
[1] + [2, 3]
(1,) + (2,)
[1] + (2,)
"a" + 1
1 + none
a if t else b
a if n else b
a if n
"x" if a == 7 else "y" if b else "z"
[1, 2, 3][0]
[1, 2, 3][-1]
[1, 2, 3][5]
[1, 2, 3][1:]
[1, 2, 3][:-1]
[1, 2, 3][::-1]
[1, 2, 3, 4, 5][1:4:2]
[1, 2, 3, 4, 5][-2:-5:-2]
[1, 2, 3][10:]
[1, 2, 3][::0]
s[0]
s[-1]
s[1:4]
s[::-1]
s[::2]
u[2:8]
u[-1]
u[::-1]
u[100]
l.0
l.5
n[0]
n.x
n[1:]
d[1:]
undefined_thing
undefined_thing.x
undefined_thing[0]
undefined_thing + 1
undefined_thing == none
undefined_thing == other_undefined
undefined_thing()
-undefined_thing
d.x
d["x"]
d.y[1].z
d.missing
d.missing.more
d["missing"]
d.items
d["items"]
d.items() | list
d.get("x")
d.get("q")
d.get("q", 5)
d.keys() | list
d.values() | list
d
d.items()
d.keys()
[1, 2.0, "a'b", 'q"q', "both'\"", none, true, (1,), (), {}, {"k": "v"}]
["é", "\n\t\\", "\x01", "\u200b", "\u00a0"]
()
(1)
(1,)
1, 2
{}
{"a": 1, "b": {"c": [1, 2]}}
{1: 2, none: 3, true: 4}
{"a": 1}.a
"a" "b" 'c'
"\x41\u00e9\101\n|"
'it\'s'
"\q"
range(3) | list
range(2, 10, 3) | list
range(5, 0, -2) | list
range(3)
range(1, 4) | string
range(0) | length
range(3)[1]
range(10)[2:5] | list
range(1, 2, 0)
range(1000000)
range("a")
dict(a=1, b=2)
dict({"x": 1}, y=2)
dict([("a", 1)])
namespace(a=1).a
namespace(a=1).b
s.upper()
s.lower()
s.title()
"hello wORLD it's".title()
s.capitalize()
s.swapcase()
"a,b,,c".split(",")
"a,b,,c".split(",", 1)
"a,b,,c".rsplit(",", 1)
"  a  b c ".split()
"  a  b c ".split(none, 1)
"  a  b c ".rsplit(none, 1)
"abc".split("")
"abc".split("x")
"a--b--c".split("--")[-1]
"<think>x</think>y".split("</think>")[0].split("<think>")[-1]
"xxabcxx".strip("x")
"xyabcyx".strip("xy")
"  a ".strip() ~ "|"
"  a ".lstrip() ~ "|"
"  a ".rstrip() ~ "|"
"\n\na\n".strip("\n") ~ "|"
"éaé".strip("é")
s.startswith("Hell")
s.startswith(("x", "He"))
s.startswith("World", 7)
s.endswith("ld")
s.endswith(("x", "ld"))
s.startswith(1)
"aXbXc".replace("X", "-")
"aXbXc".replace("X", "-", 1)
"abc".replace("", "-")
"".replace("", "x")
", ".join(["a", "b"])
", ".join([1])
", ".join(ls)
"".join("abc")
"{} and {}".format(1, "x")
"{1} {0} {name}".format(1, 2, name="n")
"{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:,}|{:x}|{:+}".format("a", "b", "c", 42, 3.14159, 1234567, 255, 3)
"{0.x} {0[y]}".format({"x": 1, "y": 2})
"{{}}".format()
"{}".format()
"{!r}".format("a")
"banana".count("an")
"banana".count("")
"banana".find("n")
"banana".rfind("n")
"banana".find("q")
"banana".find("n", 3)
"banana".index("q")
"banana".index("na")
u.find("界")
u.index("世")
"12".isdigit()
"1.2".isdigit()
"".isdigit()
"ab1".isalnum()
"ab".isalpha()
"éß".isalpha()
" \t".isspace()
"ABC".isupper()
"abc1".islower()
"Ab Cd".istitle()
"abc".islower() and "1".isnumeric()
"a\nb\r\nc".splitlines()
"a\nb\n".splitlines(true)
"prefix-x".removeprefix("prefix-")
"x-suffix".removesuffix("-suffix")
"abc".removeprefix("x")
"a=b=c".partition("=")
"a=b=c".rpartition("=")
"abc".partition("x")
"7".zfill(3)
"-7".zfill(4)
"ab".center(6) ~ "|"
"ab".center(7, "*")
"abc".center(6, "*")
"ab".ljust(4) ~ "|"
"ab".rjust(4, ".")
"straße".upper()
u.upper()
"ÀÉ".lower()
"abc".nothing()
[3, 1].index(1)
[3, 1].index(9)
[1, 1, 2].count(1)
s | upper
s | lower
"foo bar-baz (qux)" | title
"it's" | title
"hELLO" | capitalize
"" | capitalize
text | trim ~ "|"
"xxaxx" | trim("x")
5 | trim
none | trim
undefined_thing | trim
s | length
u | length
d | length
l | count
5 | length
none | length
undefined_thing | length
(l | map("string")) | length
undefined_thing | default("d")
undefined_thing | default
n | default("d")
n | default("d", true)
e | d("x", boolean=true)
a | default("d")
undefined_thing.x | default("d")
d.q | default("q")
l | join(", ")
l | join
ls | join("-") | upper
users | join(", ", attribute="name")
users | map(attribute="name") | join(",")
[1, none, "x", 2.5] | join("|")
s | join(".")
5 | join
undefined_thing | join
l | first
l | last
[] | first
[] | last
s | first
s | last
u | last
d | first
(l | map("string")) | first
(l | map("string")) | last
s | list
d | list
none | list
undefined_thing | list
l | sort
l | sort(reverse=true)
ls | sort
ls | sort(case_sensitive=true)
users | sort(attribute="name") | map(attribute="name") | list
users | sort(attribute="age,name") | map(attribute="name") | list
users | sort(attribute="age", reverse=true) | map(attribute="name") | list
[1, "a"] | sort
[3, 1.5, true] | sort
[1, 2, 1, 3, 2] | unique | list
["a", "A", "b"] | unique | list
["a", "A"] | unique(case_sensitive=true) | list
users | unique(attribute="age") | map(attribute="name") | list
l | reverse | list
s | reverse
l | reverse
d | reverse | list
5 | reverse
l | min
l | max
ls | min
ls | max(case_sensitive=true)
[] | max
users | max(attribute="age")
l | sum
users | sum(attribute="age")
users | sum("age", 10)
[0.1, 0.2] | sum
[[1], [2]] | sum(start=[])
[1.5, 2] | sum
["a"] | sum
l | map("string") | list
[" a ", "b "] | map("trim") | list
["a,b", "c"] | map("replace", "a", "x") | list
users | map(attribute="age") | list
users | map(attribute="tags") | list
users | map(attribute="tags", default="none") | list
users | map(attribute="tags.0") | list
users | map(attribute="nothing") | list
l | map("nothing") | list
l | map
ls | map("upper") | join
l | select("odd") | list
l | select("gt", 1) | list
l | select(">", 1) | list
l | reject("odd") | list
[0, 1, "", "a", none] | select | list
[0, 1, "", "a", none] | reject | list
users | selectattr("tags") | list
users | selectattr("age", "equalto", 41) | map(attribute="name") | list
users | selectattr("age", "==", 7) | list
users | selectattr("tags", "defined") | map(attribute="name") | list
users | rejectattr("tags", "defined") | map(attribute="name") | list
users | rejectattr("age", "in", [7]) | map(attribute="name") | list
users | selectattr("name", "in", ["Bo"]) | first
users | selectattr("age", "nothing") | list
l | select("equalto", 1)
d | items | list
undefined_thing | items | list
l | items | list
d | dictsort
{"b": 1, "A": 2} | dictsort
{"b": 1, "A": 2} | dictsort(true)
{"b": 1, "A": 2} | dictsort(by="value")
{"b": 1, "A": 2} | dictsort(false, "value", true)
s | replace("l", "L")
s | replace("l", "L", 2)
5 | replace(5, 6)
s | replace("l")
lines | indent
lines | indent(2)
lines | indent(2, true)
lines | indent(2, first=true, blank=true)
lines | indent("> ")
"a\n" | indent ~ "|"
"" | indent
5 | indent
5 | string
none | string
[1] | string
"a" | string
"42" | int
" 42 " | int
"4.9" | int
"x" | int
"x" | int(7)
"ff" | int(base=16)
"0x1F" | int(0, 16)
"-5" | int
4.9 | int
-4.9 | int
none | int
none | int(3)
true | int
[] | int
"1_000" | int
"1e3" | int
undefined_thing | int
"2.50" | float
"x" | float
"x" | float(1.5)
3 | float
"1e5" | float
"inf" | float
none | float
2.5 | round
3.5 | round
2.675 | round(2)
42 | round
42.7 | round
42.123 | round(1, "ceil")
42.789 | round(1, "floor")
42.1 | round(method="ceil")
1234 | round(-2)
-5 | abs
-5.5 | abs
true | abs
"x" | abs
l | batch(2) | list
l | batch(2, 0) | list
l | slice(2) | list
l | slice(2, 0) | list
range(7) | slice(3) | list
users | groupby("age") | list
users | groupby("age") | map(attribute="grouper") | list
(users | groupby("age"))[0].list | length
users | groupby("tags", default="-") | length
html | escape
html | e
html | safe
"%s is %d years and %.1f%%" | format("Bo", 41, 99.55)
"%(a)s-%(b)05d" | format(a=1, b=2)
"%s" % "x"
"%s %s" % ("x", 1)
"%5s|%-5s|%05d|%+d|%x|%X|%o|%e|%g" % ("a", "b", 42, 3, 255, 255, 8, 12345.678, 0.0001)
"%r %s" % ("a", none)
"%.3s|" % "abcdef"
"%c%c" % (65, "b")
"%%" % ()
"%s" % ()
"%s" % (1, 2)
"%d" % "x"
"%d" % 3.99
"%(x)s" % d
"%5.1f|%-8.3f|" % (3.14159, 2.0)
"one two, three's" | wordcount
"one two three four" | truncate(9)
"one two three four" | truncate(9, true)
"one two three four" | truncate(9, true, "")
"one two" | truncate(5)
"ab" | center(6) ~ "|"
d | attr("x")
d | attr("items") is callable
s | nothing
"a" | tojson
d | tojson
u | tojson
html | tojson
"\x00\x1f\x7f\u2028\"\\/" | tojson
[1, 2.0, 1e100, none, true, [], {}] | tojson
d | tojson(indent=2)
[[], {}, [1, [2]], {"a": {}}] | tojson(indent=4)
d | tojson(indent=0)
d | tojson(indent="\t")
{"b": 1, "a": 2} | tojson(sort_keys=true)
{"b": 1, "a": [1, 2]} | tojson(separators=(",", ":"))
u | tojson(ensure_ascii=true)
"\x7f" | tojson(ensure_ascii=true)
{1: 2, none: 3, 2.5: 1, true: 0} | tojson
(1, 2) | tojson
undefined_thing | tojson
range(3) | tojson
l | map("string") | tojson
l | map("string") | list | tojson
a is defined
undefined_thing is defined
undefined_thing is undefined
d.q is defined
d.x is defined
n is none
n is not none
a is number
t is number
f is number
s is number
a is integer
t is integer
f is integer
f is float
t is boolean
t is true
1 is true
t is false
s is string
a is string
d is mapping
l is mapping
l is sequence
s is sequence
d is sequence
a is sequence
undefined_thing is sequence
l is iterable
s is iterable
a is iterable
d is iterable
undefined_thing is iterable
(l | map("string")) is sequence
(l | map("string")) is iterable
d.items() is sequence
range is callable
a is callable
s.upper is callable
a is odd
a is even
a is divisibleby(7)
a is divisibleby 2
a is eq(7)
a is equalto 7
a is ne 7
a is gt 3
a is ge 7
a is lt 3
a is le 7
a is greaterthan(3)
a is lessthan(3)
a is in [7]
a is not in [7]
"a" is in "abc"
"abc" is lower
"ABC" is upper
a is sameas a
1 is sameas true
n is sameas none
"upper" is filter
"nothing" is filter
"odd" is test
a is nothing
"x" is odd
a is odd and b is odd
a is defined and a is not none and a > 1
a is string or a is number
(a is odd) ~ "!"
a is odd == true
s | upper | lower | length
s | upper is upper
-l | first
-(l | first)
l | length > 2
l | length + 1
(l | length) * 2
"a" ~ l | length
l[l | length - 1]
users[0].name ~ users[-1]["name"]
users[1].tags
users[1].tags | length
users[:2] | map(attribute="name") | list
[x for x in l]
l[
(1
"a
a b
a +
1 +* 2
{1, 2}
strftime_now("%d %b %Y")
strftime_now("%Y-%m-%d %H:%M:%S %A %B %j %y %p %I")
strftime_now("%-d/%-m %e %% %F %T")
raise_exception("no: " ~ a)
raise_exception()
cycler("a", "b").next()
joiner("-")()
s.upper(1)
s.split(sep="o")
"a b c".split(maxsplit=1)
s.format_map
none.upper()
true and none
[] or {} or "end"
loop
[1, 2, 3] | tojson | length
"a\
b"
"é" == "\u00e9"
not not a
not a == 7
1 if 0 else 2 if 0 else 3
a.b.c
messages
tools
add_generation_prompt
"x".join(["a"] * 3)
[[1, 2], [3]] | map("length") | list
[[1, 2], [3]] | map("first") | list
[[1, 2], [3]] | map("join", "+") | list
[1.0, 2.50, 1e-5, 1e-4, 123456.789, 1e15, 1e17]
1.0 == 1
{"a": none}.get("a", 1)
{"a": undefined_thing}
[undefined_thing]
{"a": 1, "a": 2}
{[1]: 2}
"abc"["upper"]()
d["get"]("x")
s.__class__
""".strip("\n").split("\n")  # noqa: W605  (the lines are templates, not Python)

BLOCKS = [
    "{% for x in l %}{{ x }},{% endfor %}",
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
    "{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% endfor %}",
    "{% for x in [] %}x{% else %}none{% endfor %}",
    "{% for x in undefined_thing %}x{% else %}none{% endfor %}",
    "{% for x in n %}x{% endfor %}",
    "{% for x in 5 %}x{% endfor %}",
    "{% for c in u %}[{{ c }}]{% endfor %}",
    "{% for k in d %}{{ k }} {% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d | items %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d | dictsort %}{{ k }};{% endfor %}",
    "{% for a, b in [(1, 2), (3, 4)] %}{{ a + b }} {% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}",
    "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for x in l if x > 1 %}{{ loop.index }}:{{ x }}/{{ loop.length }} {% else %}no{% endfor %}",
    "{% for x in l if x > 9 %}{{ x }}{% else %}no{% endfor %}",
    "{% for x in l %}{% for y in l %}{{ loop.index }}{% endfor %}-{{ loop.index }} {% endfor %}",
    "{% for x in l %}{% set o = loop %}{% for y in ls %}{{ o.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for x in l %}{% if loop.index == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% if loop.index == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% if x == 3 %}{% break %}{% endif %}{% else %}else{% endfor %}",
    "{% for x in l %}{% continue %}{% else %}else{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{% else %}else{% endfor %}",
    "{% break %}",
    "{% for x in l recursive %}{{ x }}{% endfor %}{{ 1 / 0 }}",
    "{% for x in l %}{{ y }}{% set y = x %}{% endfor %}{{ y }}",
    "{% set y = 9 %}{% for x in l %}{{ y }}{% set y = x %}{% endfor %}{{ y }}",
    "{% set ns = namespace(n=0) %}{% for x in l %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}",
    "{% set ns = namespace(found=false) %}{% set ns.other = 1 %}{{ ns.found }}{{ ns.other }}{{ ns.x }}",
    "{% set d.x = 5 %}",
    "{% set nothing.x = 5 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set a, b = [1] %}",
    "{% set x = 1, 2 %}{{ x }}",
    "{% set x %}block {{ a }}{% endset %}[{{ x }}]",
    "{% set x | upper | trim %}  block {{ a }} {% endset %}[{{ x }}]",
    "{% set x %}{% set y = 1 %}{% endset %}{{ y }}|",
    "{% if a == 7 %}{% set q = 1 %}{% endif %}{{ q }}",
    "{% if a == 8 %}{% set s = 1 %}{% endif %}{{ s }}",
    "{% if n %}1{% elif e %}2{% elif a %}3{% else %}4{% endif %}",
    "{% if n %}1{% else %}4{% endif %}",
    "{% if undefined_thing %}1{% endif %}|",
    "{% if undefined_thing.x %}1{% endif %}|",
    "{% if a, b %}tuple{% endif %}",
    "{% macro m(x, y=2, z=x) %}{{ x }}-{{ y }}-{{ z }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(y=1, x=5) }} {{ m() }}",
    "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(q=2) }}",
    "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1, x=2) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, a=3) }}",
    "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}inner {{ a }}{% endcall %}",
    "{% macro m(l) %}{% for x in l %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(x, i) m(ls) %}{{ i }}{{ x }} {% endcall %}",
    "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ a }}{{ loc }}{% endmacro %}{% set loc = 1 %}{{ m() }}",
    "{% macro m() %}{% set a = 1 %}{{ a }}{% endmacro %}{{ m() }}{{ a }}",
    "{% macro fact(n) %}{{ 1 if n < 2 else n * (fact(n - 1) | int) }}{% endmacro %}{{ fact(5) }}",
    "{% macro m(x) %}{{ x }}{% endmacro %}{{ m('a') ~ m('b') | upper }}{{ m('') == '' }}{{ m.name }}",
    "{% macro m(x) %}{% for y in x %}{{ y }}{% if y is sequence and y is not string %}{{ m(y) }}{% endif %}{% endfor %}{% endmacro %}{{ m([1, [2, 3]]) }}",
    "{% for x in l %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro m(a, b=1, c) %}{% endmacro %}",
    "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(*[1]) }}{{ m(**{'x': 2}) }}",
    "{% with x = 1, y = a %}{{ x }}{{ y }}{% endwith %}{{ x }}|",
    "{% with %}{% set x = 1 %}{{ x }}{% endwith %}{{ x }}|",
    "{% filter upper %}abc {{ s }}{% endfilter %}",
    "{% filter replace('a', 'b') | indent(2, true) %}aaa\nxa{% endfilter %}",
    "{% generation %}answer {{ a }}{% set q = 1 %}{% endgeneration %}{{ q }}|",
    "{% for x in l %}{% generation %}{{ loop.index }}{{ x }}{% endgeneration %}{% endfor %}",
    "{% raw %}{{ x }} {% if %}{% endraw %}|",
    "  {% raw %}\n  x\n  {% endraw %}  \n y",
    "a {%- raw -%}  b  {%- endraw -%} c",
    "{# comment #}a{#- trim -#} b {# multi\nline #}\nc",
    "a\n  {# comment #}\nb",
    "a  {{- 1 -}}  b",
    "a\n{{- 1 }}\n\nb",
    "{% if true %}\na\n{% endif %}\nb\n",
    "  {% if true %}\n    a\n  {% endif %}\n  b\n\n",
    "  {%+ if true %}\n    a\n  {%+ endif +%}\n  b",
    "x {% if true %} y {% endif %} z",
    "x\n\t {% if true -%}\n\n y \n{%- endif %}\n\n z",
    "{% if true +%}\na{% endif %}",
    "{{ 1 }}\n  {{ 2 }}\n",
    "{% for x in l %}\n  {{ x }}\n{% endfor %}\nend",
    "{%- for x in l -%}\n  {{ x }}\n{%- endfor -%}\nend\n\n",
    "line\r\n{% if true %}\r\nx\r\n{% endif %}\rend\r\n",
    "{{ 'a\r\nb' }}",
    "\n\n{% set x = 1 %}\n\n",
    " {{ 1 }} {% set x = 1 %} ",
    "  {% set x = 1 %}{% set y = 2 %}\n  {{ x }}",
    "a{{ '' }}  {% set x = 1 %}\nb",
    "{% set x = 1 -%}   {% set y = 2 %}\nb",
    "{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a': 1}}}",
    "{{ '}}' }}{{ '%}' }}{% if '%}' %}x{% endif %}",
    "{ {not a tag} } {{ '{{' }} { % %} {",
    "{{ a }",
    "{% if a %}",
    "{% endif %}",
    "{% nothing %}",
    "{{ }}",
    "{# open",
    "{% raw %} open",
    "{% if a }}x{% endif %}",
    "{% for in l %}{% endfor %}",
    "{% set %}",
    "{% set 1 = 2 %}",
    "{% set none = 2 %}",
    "{% if %}{% endif %}",
    "{% for x in l %}{% else %}{% else %}{% endfor %}",
    "{% print a %}",
    "{% set c = cycler('x', 'y') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set z = c.reset() %}{{ c.current }}",
    "{% set j = joiner(', ') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}",
    "{% set g = l | map('string') %}{{ g | list }}{{ g | list }}{{ 'x' if g else 'y' }}",
    "{% for g in users | groupby('age') %}{{ g.grouper }}:{{ g.list | map(attribute='name') | join(',') }};{% endfor %}",
    "{% for age, people in users | groupby('age') %}{{ age }}:{{ people | length }};{% endfor %}",
    "{% for row in range(5) | batch(2, '-') %}{{ row | join(' ') }}\n{% endfor %}",
    "{% set x = 'outer' %}{% for i in [1] %}{% set x = 'inner' %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = [1, 2] %}{% set y = x %}{{ x is sameas y }}{{ x is sameas [1, 2] }}",
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}",
    "{% if a != 8 %}{{ raise_exception('a is ' + a | string) }}{% endif %}",
    "{% for x in l %}{{ loop }}{% endfor %}{{ 1 / 0 }}",
    "{% for x in l | sort | reverse %}{{ x }}{% endfor %}",
    "{% for i in range(1, 4) %}{{ i }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for m in messages[::-1] %}x{% endfor %}",
    "{{ 'é' }}ü{% if '世' in u %}界{% endif %}",
    "{% set größe = 3 %}{{ größe }}",
    "{{ a is defined if true else 2 }}",
    "{{ (a if true else b) | string ~ 'x' }}",
    "{% if 'x' is in d and d is mapping and d is not string %}ok{% endif %}",
    "{% if not (a is odd) or b is even %}1{% else %}2{% endif %}",
    "{% for x in l %}{{ x if not loop.last }}{% endfor %}",
    "{% set ns = namespace(l=[]) %}{% for x in l %}{% set ns.l = ns.l + [x * 2] %}{% endfor %}{{ ns.l }}",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% extends 'x' %}",
    "{% do l.append(1) %}",
    "{{ self }}{{ 1 / 0 }}",
]

MUTATIONS = [
    "{% set l = [1] %}{% set x = l.append(2) %}{{ l }}{{ x }}",
    "{% set l = [1] %}{{ l.append(2) or '' }}{{ l }}",
    "{% set l = [1, 2, 3] %}{{ l.pop() }}{{ l.pop(0) }}{{ l }}",
    "{% set l = [1, 2] %}{{ l.insert(0, 9) }}{{ l.insert(-1, 8) }}{{ l.insert(99, 7) }}{{ l }}",
    "{% set l = [1] %}{{ l.extend([2, 3]) }}{{ l.extend('ab') }}{{ l }}",
    "{% set l = [3, 1, 2] %}{{ l.sort() }}{{ l }}{{ l.sort(reverse=true) }}{{ l }}{{ l.reverse() }}{{ l }}",
    "{% set l = [1, 2, 1] %}{{ l.remove(1) }}{{ l }}{{ l.clear() }}{{ l }}",
    "{% set l = [] %}{{ l.pop() }}",
    "{% set d = {'a': 1} %}{{ d.update({'b': 2}) }}{{ d.update(c=3) }}{{ d.update([('e', 4)]) }}{{ d }}",
    "{% set d = {'a': 1} %}{{ d.pop('a') }}{{ d.pop('a', 5) }}{{ d }}",
    "{% set d = {} %}{{ d.pop('a') }}",
    "{% set d = {} %}{{ d.setdefault('a', []).append(1) }}{{ d }}",
    "{% set d = {'a': 1} %}{% set c = d.copy() %}{{ c.update(a=2) }}{{ d }}{{ c }}",
    "{% set l = [1] %}{% set m = l %}{{ m.append(2) }}{{ l }}{{ l.copy() }}",
    "{% set d = dict() %}{% for i in range(40) %}{% set _ = d.update({i | string: i}) %}{% endfor %}{{ d['17'] }}{{ d.pop('3') }}{{ '3' in d }}{{ d | length }}{{ d }}",
]


def write(path, golden):
    lines = [",\n".join(json.dumps(case, ensure_ascii=False) for case in golden.pop("cases"))]
    head = json.dumps(golden, ensure_ascii=False, indent=0)[1:-2] if golden else ""
    path.write_text("{" + head + (",\n" if head else "") + '"cases": [\n' + "".join(lines) + "\n]}\n")
    print(path, path.stat().st_size)


def main():
    folder = pathlib.Path(sys.argv[1])
    cases = []
    for template in ["{{ " + e + " }}" for e in EXPRESSIONS] + BLOCKS:
        cases.append({"template": template, **expect(SANDBOX, template, VARIABLES)})
    cases += [{"template": template, **expect(MUTABLE, template, VARIABLES)} for template in MUTATIONS]
    # Addresses of objects are nobody's business.
    cases = [case for case in cases if " at 0x" not in case.get("expected", "")]
    write(folder / "language.json", {"jinja2": jinja2.__version__, "variables": VARIABLES, "cases": cases})

    cases = []
    for family, template in FAMILIES.items():
        for name, variables in SCENARIOS.items():
            cases.append({"family": family, "scenario": name, **expect(SANDBOX, template, variables)})
    write(folder / "families.json",
          {"jinja2": jinja2.__version__, "templates": FAMILIES, "scenarios": SCENARIOS, "cases": cases})  # fmt: skip


if __name__ == "__main__":
    main()
