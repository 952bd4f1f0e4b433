"""Templates in the style of the well-known model families, written from their documented formats, and conversations."""

SYSTEM = {"role": "system", "content": " You are terse. "}
USER = {"role": "user", "content": "What is 2+2? <é世>"}
ANSWER = {"role": "assistant", "content": "4\n"}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Weather of a \"city\"", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "näme"}, "unit": {"type": "string", "enum": ["c", "f"]}},
    "required": ["city"]}}}  # fmt: skip
CALL = {"role": "assistant", "content": "", "tool_calls": [
    {"id": "abcdefghi", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2, "x": [1.5, None, True]}}}]}  # fmt: skip
TOOL_RESULT = {"role": "tool", "name": "get_weather", "tool_call_id": "abcdefghi", "content": "{\"t\": 21}"}
THINKING = {"role": "assistant", "content": "<think>\nhm, 4?\n</think>\n\nIt is 4."}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

SCENARIOS = {
    "user": {"messages": [USER], "add_generation_prompt": True, **TOKENS},
    "no prompt": {"messages": [SYSTEM, USER, ANSWER], **TOKENS},
    "turns": {"messages": [SYSTEM, USER, ANSWER, USER], "add_generation_prompt": True, **TOKENS},
    "tools": {"messages": [SYSTEM, USER, CALL, TOOL_RESULT], "tools": [TOOL, TOOL], "add_generation_prompt": True, **TOKENS},
    "thinking": {"messages": [USER, THINKING, USER], "add_generation_prompt": True, "enable_thinking": False, **TOKENS},
    "thought last": {"messages": [USER, {"role": "assistant", "content": "4", "reasoning_content": "\nhm\n"}], "enable_thinking": True, **TOKENS},
    "user twice": {"messages": [USER, USER], **TOKENS},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Look: "}, {"type": "image"}]}], **TOKENS},
    "documents": {"messages": [USER], "documents": [{"title": "T", "text": "body"}], "add_generation_prompt": True},
    "empty": {"messages": []},
}  # fmt: skip

FAMILIES = {}

FAMILIES["chatml"] = r"""{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

FAMILIES["llama2"] = r"""{% if messages and messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set system = messages[0]['content'] %}{% else %}{% set rest = messages %}{% set system = false %}{% endif %}
{% for m in rest %}
{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate user/assistant/user/assistant/...') }}{% endif %}
{% if loop.index0 == 0 and system != false %}{% set content = '<<SYS>>\n' + system + '\n<</SYS>>\n\n' + m['content'] %}{% else %}{% set content = m['content'] %}{% endif %}
{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif m['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}
{% endfor %}"""

FAMILIES["llama3"] = r"""{{- bos_token }}
{%- set date = date_string if date_string is defined else (strftime_now('%d %b %Y') if strftime_now is defined else '26 Jul 2024') %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{#- The system message comes out of the list -#}
{%- if messages and messages[0].role == 'system' %}
    {%- set system = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = '' %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\n\n' }}
{%- if tools is not none %}{{- 'Environment: ipython\n' }}{%- endif %}
{{- 'Today Date: ' + date + '\n\n' }}
{%- if tools is not none and not tools_in_user_message | default(false) %}
    {{- 'You have access to the following functions.\n\n' }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- '\n\n' }}
    {%- endfor %}
{%- endif %}
{{- system }}{{- '<|eot_id|>' }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}{{- raise_exception('Only single tool calls!') }}{%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
        {{- '{"name": "' + call.name + '", ' }}{{- '"parameters": ' }}{{- call.arguments | tojson }}{{- '}' }}{{- '<|eot_id|>' }}
    {%- elif message.role in ['tool', 'ipython'] %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\n\n' }}
        {%- if message.content is mapping or (message.content is iterable and message.content is not string) %}{{- message.content | tojson }}{%- else %}{{- message.content }}{%- endif %}
        {{- '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"""

FAMILIES["mistral"] = r"""{%- if messages and messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}{{- raise_exception("After the optional system message, roles must alternate") }}{%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and message == user_messages[-1] %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}{%- else %}{{- '"' + key + '": ' + val | tojson }}{%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}{{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}{{- "[INST] " + message["content"] + "[/INST]" }}{%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function | tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id | length != 9 %}{{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}{%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}{{- " " + message["content"] | trim + eos_token }}
    {%- elif message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}{%- set content = message.content.content %}{%- else %}{%- set content = message.content %}{%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content | string + ", " }}{{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}{{- raise_exception("Only user and assistant roles are supported") }}
    {%- endif %}
{%- endfor %}
"""

FAMILIES["qwen3"] = r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
    {{- "# Tools\n\nSignatures within <tools></tools>:\n<tools>" }}
    {%- for tool in tools %}{{- "\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\n</tools><|im_end|>\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}{%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}{%- else %}{%- set content = '' %}{%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or (not loop.last and reasoning)) %}
            {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}{{- '\n' }}{%- endif %}
                {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
                {{- '<tool_call>\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}{{- tool_call.arguments }}{%- else %}{{- tool_call.arguments | tojson }}{%- endif %}
                {{- '}\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<tool_response>\n' }}{{- content }}{{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}
{%- endif %}"""

FAMILIES["phi3"] = r"""{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}{{'<|system|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'user' %}{{'<|user|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>
' + message['content'] + '<|end|>
'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>
' }}{% else %}{{ eos_token }}{% endif %}"""

FAMILIES["phi4"] = r"""{% for message in messages %}{% if message['role'] == 'system' and 'tools' in message and message['tools'] is not none %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + message['tools'] + '<|/tool|>' + '<|end|>' }}{% else %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"""

FAMILIES["gemma2"] = r"""{{ bos_token }}{% if messages and messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '
' + message['content'] | trim + '<end_of_turn>
' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model
'}}{% endif %}"""

FAMILIES["gemma3"] = r"""{{ bos_token }}
{%- if messages and messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '

' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '

' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '
' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}{%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
"""

FAMILIES["deepseek-v2"] = r"""{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ 'User: ' + message['content'] + '

' }}{% elif message['role'] == 'assistant' %}{{ 'Assistant: ' + message['content'] + eos_token }}{% elif message['role'] == 'system' %}{{ message['content'] + '

' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"""

FAMILIES["deepseek-r1"] = r"""{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}{{bos_token}}{{ns.system_prompt}}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<｜User｜>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and message['tool_calls'] %}{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls']%}{%- if not ns.is_first %}{{'<｜Assistant｜><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>' + tool['function']['name'] + '\n' + '```json' + '\n' + (tool['function']['arguments'] | tojson) + '\n' + '```' + '<｜tool▁call▁end｜>'}}{%- set ns.is_first = true -%}{%- else %}{{'\n' + tool['type']}}{%- endif %}{%- endfor %}{{'<｜tool▁calls▁end｜><｜end▁of▁sentence｜>'}}{%- elif message['role'] == 'assistant' and message['content'] is not none %}{%- if ns.is_tool %}{{'<｜tool▁outputs▁end｜>' + message['content'] + '<｜end▁of▁sentence｜>'}}{%- set ns.is_tool = false -%}{%- else %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{%- if ns.is_output_first %}{{'<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>' + message['content'] + '<｜tool▁output▁end｜>'}}{%- set ns.is_output_first = false %}{%- endif %}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{'<｜tool▁outputs▁end｜>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜><think>\n'}}{% endif %}"""

FAMILIES["command-r"] = r"""{%- macro json_to_python_type(spec) %}
{%- set basic = {"string": "str", "number": "float", "integer": "int", "boolean": "bool"} %}
{%- if basic[spec.type] is defined %}
    {{- basic[spec.type] }}
{%- elif spec.type == "array" %}
    {{- "List[" + json_to_python_type(spec["items"]) + "]" }}
{%- elif spec.type == "object" %}
    {{- "Dict" }}
{%- else %}
    {{- "Any" }}
{%- endif %}
{%- endmacro %}
{{- bos_token }}
{%- set system = messages[0].content if messages and messages[0].role == 'system' else 'You are Command.' %}
{{- '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>' ~ system }}
{%- if tools %}
{{- "\n\n## Available Tools\n" }}
{%- for tool in tools | map(attribute='function') | list %}
{{- "```python\ndef " + tool.name + "(" }}
{%- for name, spec in tool.parameters.properties.items() %}
{{- name ~ ": " }}{% if name not in tool.parameters.required %}Optional[{{ json_to_python_type(spec) }}] = None{% else %}{{ json_to_python_type(spec) }}{% endif %}
{%- if not loop.last %}{{ ", " }}{% endif %}
{%- endfor %}
{{- ') -> List[Dict]:\n    """' ~ tool.description | indent(4) ~ '"""\n    pass\n```' }}
{%- endfor %}
{%- endif %}
{{- '<|END_OF_TURN_TOKEN|>' }}
{%- for message in messages if message.role != 'system' %}
{%- if message.role == 'user' %}{{ '<|START_OF_TURN_TOKEN|><|USER_TOKEN|>' + message.content + '<|END_OF_TURN_TOKEN|>' }}
{%- elif message.role == 'assistant' %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% if message.tool_calls %}{{ "Action:```json\n" }}{% for c in message.tool_calls %}{{ {"tool_name": c.function.name, "parameters": c.function.arguments} | tojson(indent=4) | indent(2) }}{% endfor %}{{ "\n```" }}{% else %}{{ message.content.strip() }}{% endif %}{{ '<|END_OF_TURN_TOKEN|>' }}
{%- elif message.role == 'tool' %}{{ "<results>\ndocument: " ~ loop.index0 ~ "\n" ~ message.content ~ "</results>" }}
{%- endif %}
{%- endfor %}
{%- if documents %}{% for doc in documents %}{{ "\nDocument: " ~ loop.index0 }}{% for k, v in doc | dictsort %}{{ "\n" ~ k ~ ": " ~ v }}{% endfor %}{% endfor %}{% endif %}
{%- if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}"""

FAMILIES["granite"] = r"""{%- if messages and messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set system_message = "Knowledge Cutoff Date: April 2024.\nToday's Date: " + strftime_now('%B %d, %Y') + ".\nYou are Granite." %}
    {%- if tools and documents %}{%- set system_message = system_message + " You have tools and documents." %}{%- elif tools %}{%- set system_message = system_message + " You have tools." %}{%- elif documents %}{%- set system_message = system_message + " Use the documents." %}{%- endif %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- '<|start_of_role|>system<|end_of_role|>' + system_message + '<|end_of_text|>\n' }}
{%- if tools %}{{- '<|start_of_role|>tools<|end_of_role|>' }}{{- tools | tojson(indent=4) }}{{- '<|end_of_text|>\n' }}{%- endif %}
{%- if documents %}
    {{- '<|start_of_role|>documents<|end_of_role|>' }}
    {%- for document in documents %}
        {{- 'Document ' + loop.index0 | string + '\n' }}{{- document['text'] }}
        {%- if not loop.last %}{{- '\n\n'}}{%- endif%}
    {%- endfor %}
    {{- '<|end_of_text|>\n' }}
{%- endif %}
{%- for message in loop_messages %}
    {{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + message['content'] + '<|end_of_text|>\n' }}
    {%- if loop.last and add_generation_prompt %}
        {{- '<|start_of_role|>assistant' }}{%- if controls %}{{- ' ' + controls | tojson() }}{%- endif %}{{- '<|end_of_role|>' }}
    {%- endif %}
{%- endfor %}"""

FAMILIES["hermes"] = r"""{%- macro schema(spec) %}
    {%- if spec.type == "string" %}{{- "str" }}{%- elif spec.type is defined and spec.type is iterable and spec.type is not string %}{{- "Union[" }}{%- for t in spec.type %}{{- schema({"type": t}) }}{%- if not loop.last %}{{- "," }}{%- endif %}{%- endfor %}{{- "]" }}{%- else %}{{- spec.type }}{%- endif %}
{%- endmacro %}
{{- bos_token }}{{- "<|im_start|>system\nYou are a function calling AI model. <tools> " }}
{%- for tool in tools or [] %}
    {%- if tool.function is defined %}{%- set tool = tool.function %}{%- endif %}
    {{- '{"type": "function", "function": ' }}{{- '{"name": "' + tool.name + '", ' }}
    {{- '"description": "' + tool.name + '(' }}
    {%- for param_name, param_fields in tool.parameters.properties | items %}{{- param_name + ": " + schema(param_fields) }}{%- if not loop.last %}{{- ", " }}{%- endif %}{%- endfor %}
    {{- ")" }}
    {%- if tool.return is defined %}{{- " -> " + schema(tool.return) }}{%- endif %}
    {{- " - " + tool.description + "\n\n" }}
    {%- for param_name, param_fields in tool.parameters.properties | items %}
        {%- if loop.first %}{{- "    Args:\n" }}{%- endif %}
        {{- "        " + param_name + "(" + schema(param_fields) + "): " + (param_fields.description | default('')) | trim }}
    {%- endfor %}
    {{- '", "parameters": ' }}
    {%- if tool.parameters.properties | length == 0 %}{{- "{}" }}{%- else %}{{- tool.parameters | tojson }}{%- endif %}
    {{- "}" }}{%- if not loop.last %}{{- "\n" }}{%- endif %}
{%- endfor %}
{{- " </tools>" }}{{- "<|im_end|>\n" }}
{%- for message in messages %}
    {%- if message.role == "user" or message.role == "system" or (message.role == "assistant" and message.tool_calls is not defined) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- for tool_call in message.tool_calls %}
            {{- '\n<tool_call>\n' }}
            {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '{"name": "' }}{{- tool_call.name }}{{- '"' }}{{- ', ' }}
            {%- if tool_call.arguments is defined %}{{- '"arguments": ' }}{%- if tool_call.arguments is string %}{{- tool_call.arguments }}{%- else %}{{- tool_call.arguments | tojson }}{%- endif %}{%- endif %}
            {{- '}' }}{{- '\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}{{- '<|im_start|>tool\n' }}{%- endif %}
        {{- '<tool_response>\n' }}{{- message.content }}
        {%- if not loop.last %}{{- '\n</tool_response>\n' }}{%- else %}{{- '\n</tool_response>' }}{%- endif %}
        {%- if not loop.last and loop.nextitem.role != "tool" %}{{- '<|im_end|>' }}{%- elif loop.last %}{{- '<|im_end|>' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""

FAMILIES["smollm3"] = r"""{# defaults #}
{%- if enable_thinking is not defined -%}
{%- set enable_thinking = true -%}
{%- endif -%}
{%- set reasoning_mode = "/think" if enable_thinking else "/no_think" -%}
{{- "<|im_start|>system\n" -}}
{%- if messages and messages[0].role == "system" -%}
  {%- set system_message = messages[0].content -%}
  {%- if "/no_think" in system_message -%}{%- set reasoning_mode = "/no_think" -%}{%- endif -%}
  {%- set custom_instructions = system_message.replace("/no_think", "").replace("/think", "").rstrip() -%}
{%- endif -%}
{{- "## Metadata\n\nKnowledge Cutoff Date: June 2025\n" -}}
{%- set today = strftime_now("%d %B %Y") -%}
{{- "Today Date: " ~ today ~ "\n" -}}
{{- "Reasoning Mode: " + reasoning_mode + "\n\n" -}}
{%- if custom_instructions -%}{{- custom_instructions + "\n\n" -}}{%- endif -%}
{%- if tools -%}
  {%- set ns = namespace(xml="Tools:\n<tools>\n") -%}
  {%- for tool in tools -%}{%- set ns.xml = ns.xml ~ (tool | string) ~ "\n" -%}{%- endfor -%}
  {{- ns.xml + "</tools>\n\n" -}}
{%- endif -%}
{{- "<|im_end|>\n" -}}
{%- for message in messages -%}
    {%- set content = message.content if message.content is string else "" -%}
    {%- if message.role == "user" -%}
        {{ "<|im_start|>" + message.role + "\n"  + content + "<|im_end|>\n" }}
    {%- elif message.role == "assistant" -%}
        {% generation %}
        {%- if reasoning_mode == "/think" -%}
            {{ "<|im_start|>assistant\n" + content.lstrip("\n") + "<|im_end|>\n" }}
        {%- else -%}
            {{ "<|im_start|>assistant\n" + "<think>\n\n</think>\n" + content.lstrip("\n") + "<|im_end|>\n" }}
        {%- endif -%}
        {% endgeneration %}
    {%- elif message.role == "tool" -%}
    {{ "<|im_start|>" + "user\n"  + content + "<|im_end|>\n" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {%- if reasoning_mode == "/think" -%}{{ "<|im_start|>assistant\n" }}{%- else -%}{{ "<|im_start|>assistant\n" + "<think>\n\n</think>\n" }}{%- endif -%}
{%- endif -%}"""

FAMILIES["zephyr"] = r"""{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>
'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""

FAMILIES["yi"] = r"""{% if messages[0]['role'] == 'system' %}{% set system_message = messages[0]['content'] %}{% endif %}{% if system_message is defined %}{{ system_message }}{% endif %}{% for message in messages %}{% set content = message['content'] %}{% if message['role'] == 'user' %}{{ '<|im_start|>user\n' + content + '<|im_end|>\n<|im_start|>assistant\n' }}{% elif message['role'] == 'assistant' %}{{ content + '<|im_end|>' + '\n' }}{% endif %}{% endfor %}"""

FAMILIES["falcon3"] = r"""{%- if tools %}
{{- '<|system|>\n' }}
{%- if messages[0]['role'] == 'system' %}{{- messages[0]['content'] }}{%- set remaining_messages = messages[1:] %}{%- else %}{%- set remaining_messages = messages %}{%- endif %}
{{- '\n<tools>[' }}{% for tool in tools %}{{ tool | tojson }}{{ ', ' if not loop.last else '' }}{% endfor %}{{ ']</tools>' }}
{%- for message in remaining_messages %}{{ '\n<|' ~ message.role ~ '|>\n' ~ (message.content or (message.tool_calls | tojson)) }}{%- endfor %}
{%- else %}
{%- for message in messages %}
{%- if message['role'] == 'system' %}{{- '<|system|>\n' + message['content'] + '\n' }}
{%- elif message['role'] == 'user' %}{{- '<|user|>\n' + message['content'] + '\n' }}
{%- elif message['role'] == 'assistant' %}{%- if not loop.last %}{{- '<|assistant|>\n' + message['content'] + eos_token + '\n' }}{%- else %}{{- '<|assistant|>\n' + message['content'] + eos_token }}{%- endif %}
{%- endif %}
{%- if loop.last and add_generation_prompt %}{{- '<|assistant|>\n' }}{%- endif %}
{%- endfor %}
{%- endif %}"""

FAMILIES["olmo"] = r"""{{ eos_token }}{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>
' + message['content'] }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>
'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""
