// Tests the parts of a conversation's record that are not words: learned messages, tools and calls,
// variables of templates, nulls in tables, and letters that spell control tokens. Each part must be
// applied, refused by name, or reported in a note if it has no effect. If a part were silently
// ignored, the training would differ from what its writer meant.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tests/interfaces/expect_user_error.h"
#include "tests/interfaces/texts/chat_fixture.h"
#include "tools/run/data/dataset.h"

namespace reprise {
namespace {

// Like Qwen2.5's template: tools are before all messages, and calls are after the content of a
// message.
constexpr const char* kTools =
    "{% if tools %}{{ '<|s|>system\\n' }}{% for t in tools %}{{ t | tojson }}{% endfor %}{{ '<|e|>\\n' }}{% endif %}"
    "{% for m in messages %}{{ '<|s|>' + m.role + '\\n' }}{% if m.content %}{{ m.content }}{% endif %}"
    "{% for c in m.tool_calls or [] %}{{ '(' + c.function.name + ' ' }}{{ c.function.arguments | tojson }}{{ ')' }}{% "
    "endfor %}{{ '<|e|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|s|>assistant\\n' }}{% endif %}";
// A template that, like many others, lists the roles that it knows. It does not write a message
// with another role.
constexpr const char* kKnown =
    "{% for m in messages %}{% if m.role in ['user', 'assistant', 'system'] %}{{ '<|s|>' + m.role + '\\n' + m.content "
    "+ '<|e|>\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|s|>assistant\\n' }}{% endif %}";

Json calls(const Json& arguments) {
  const Json function = {{"name", "w"}, {"arguments", arguments}};
  return {{"role", "assistant"},
          {"content", ""},
          {"tool_calls", Json::array({{{"type", "function"}, {"function", function}}})}};
}

Json with(Json value, const std::string& key, const Json& member) {
  value[key] = member;
  return value;
}

class ChatRecords : public Chat {
 protected:
  void put_template(const std::string& source) const { put_file(folder.file("chat_template.jinja"), source); }
  std::set<std::string> unused(const Json& sample) const { return read(sample).notes.unused; }
};

// The key "weight" is from OpenAI, "train" and "training" are from Axolotl, and "loss" is from
// ms-swift.
TEST_F(ChatRecords, AMessageSaysWhetherItIsLearned) {
  for (const char* source : {kTurns, kMarked}) {
    put_template(source);
    for (const char* key : {"weight", "train", "training", "loss"}) {
      for (const Json& no : {Json(0), Json(false), Json(0.0)}) {
        const Json sample =
            chat_of({message("user", "a"), with(message("assistant", "b"), key, no), message("user", "c"),
                     with(message("assistant", "d"), key, no == 0 ? Json(1) : Json(true))});
        EXPECT_EQ(learned(sample).rfind("d<|e|>", 0), 0u) << key << no;
        EXPECT_TRUE(unused(sample).empty());
      }
      const Json none = chat_of({message("user", "a"), with(message("assistant", "b"), key, nullptr)});
      EXPECT_EQ(learned(none).rfind("b<|e|>", 0), 0u) << "null says nothing";
      const auto refused = [&](const Json& value, std::initializer_list<std::string> words) {
        expect_user_error(
            [&] {
              tokens_of(chat_of({message("user", "a"), with(message("assistant", "b"), key, value)}));
            },
            words);
      };
      refused(0.5, {"x: messages[1]." + std::string(key) + ": must be 0 or 1, false or true, not 0.5"});
      refused("no", {"messages[1]." + std::string(key), "not \"no\""});
      refused(false, {"x: nothing is learned from it", "that is to be learned"});
    }
  }
  const Json both = chat_of({message("user", "a"), with(with(message("assistant", "b"), "weight", 1), "train", false)});
  expect_user_error([&] { tokens_of(both); }, {"x: messages[1].train: says the opposite of \"weight\""});
  const Json of_user = chat_of({with(message("user", "a"), "train", true), message("assistant", "b")});
  EXPECT_EQ(unused(of_user), (std::set<std::string>{"\"train\" true of a message that is not the assistant's"}));
  const Json of_prompt = {{"prompt", {message("user", "a")}},
                          {"completion", {with(message("assistant", "b"), "weight", 2)}}};
  expect_user_error([&] { tokens_of(of_prompt); }, {"x: completion[0].weight: "});
  const Json shared = {{"conversations",
                        {{{"from", "human"}, {"value", "a"}},
                         {{"from", "gpt"}, {"value", "b"}, {"train", false}},
                         {{"from", "human"}, {"value", "c"}},
                         {{"from", "gpt"}, {"value", "d"}}}}};
  EXPECT_EQ(learned(shared), "d<|e|>|") << "the template marks no line break";
}

TEST_F(ChatRecords, AllButUnlearnedMessages) {
  const Json sample =
      chat_of({with(message("user", "ab"), "train", false), with(message("assistant", "c"), "weight", 0),
               message("user", "d"), message("assistant", "e")});
  EXPECT_EQ(learned(sample, TrainOn::kAll),
            "<|s|>user\n|<|e|>\n<|s|>assistant\n|<|e|>\n<|s|>user\nd<|e|>\n<|s|>assistant\ne<|e|>\n");
}

// Libraries for tables add members with the value null to rows that do not have them.
TEST_F(ChatRecords, NullsAndEmptyListsAreAbsent) {
  put_template(
      "{{ tools | tojson if tools is not none else '' }}"
      "{% for m in messages %}{{ '<|s|>' + m.role + '\\n' }}{% if m.tool_calls is defined %}{% for c in m.tool_calls "
      "%}{{ c | tojson }}{% endfor %}{% else %}{{ m.content }}{% endif %}"
      "{{ '<|e|>\\n' }}{% endfor %}");
  for (const Json& nothing : {Json(nullptr), Json::array()}) {
    const Json sample = {{"messages", {message("user", "q"), with(message("assistant", "a"), "tool_calls", nothing)}},
                         {"tools", nothing}};
    EXPECT_EQ(tokens_of(sample).text, "<|s|>user\nq<|e|>\n<|s|>assistant\na<|e|>\n") << nothing;
    EXPECT_TRUE(unused(sample).empty());
  }
  Json sample = {{"messages", {message("user", "q"), calls({{"city", "Oslo"}, {"n", nullptr}})}},
                 {"tools", {{{"name", "w"}, {"city", nullptr}, {"required", Json::array()}}}}};
  EXPECT_EQ(tokens_of(sample).text.find("null"), std::string::npos);
  EXPECT_NE(tokens_of(sample).text.find(R"([{"name": "w", "required": []}])"), std::string::npos)
      << "an empty list of a tool is the tool's";
  EXPECT_EQ(unused(sample), (std::set<std::string>{"null in messages", "null in tools"}));
  sample["tools"] = R"([{"name": "w", "city": null}])";
  EXPECT_NE(tokens_of(sample).text.find(R"("city": null)"), std::string::npos) << "a text went through no table";
  put_template(
      "{% for m in messages %}{{ 'none' if m.content is none else m.content }}{{ m.tool_calls | tojson if m.tool_calls "
      "else '' }}{% endfor %}");
  EXPECT_EQ(tokens_of(chat_of({message("user", "q"), with(calls({{"a", 1}}), "content", nullptr)}), TrainOn::kAll)
                .text.rfind("qnone[", 0),
            0u)
      << "templates ask for a null content beside calls";
}

TEST_F(ChatRecords, ArgumentsAreWhatTheTemplateWants) {
  const std::string text = R"({"city":"Oslo"})";
  const auto of = [&](const Json& arguments) {
    return tokens_of(chat_of({message("user", "q"), calls(arguments)}), TrainOn::kAll).text;
  };
  put_template(kTools);
  EXPECT_NE(of(text).find(R"((w {"city": "Oslo"}))"), std::string::npos) << of(text);
  EXPECT_NE(of("{}").find("(w {})"), std::string::npos) << "without quotes the two are told apart, too";
  EXPECT_NE(of("Oslo").find("(w \"Oslo\")"), std::string::npos) << "no JSON";
  EXPECT_NE(of(R"({"n": null})").find(R"((w {"n": null}))"), std::string::npos);
  put_template(
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.arguments if "
      "c.function.arguments is string else c.function.arguments | tojson }}{% endfor %}{% endfor %}");
  EXPECT_EQ(of(text), "q" + text) << "as it is where the template takes a text";
  EXPECT_EQ(of({{"city", "Oslo"}}), R"(q{"city": "Oslo"})");
  put_template(
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ '<' + c['function']['arguments'] + "
      "'>' }}{% endfor %}{% endfor %}");
  EXPECT_EQ(of(text), "q<" + text + ">");
  EXPECT_EQ(of({{"city", "Oslo"}}), R"(q<{"city": "Oslo"}>)") << "DeepSeek's form takes texts alone";
  put_template(
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{% for k, v in "
      "c.function.arguments.items() %}{{ k }}={{ v }};{% endfor %}{% endfor %}{% endfor %}");
  EXPECT_EQ(of(text), "qcity=Oslo;");
}

TEST_F(ChatRecords, WhatTheTemplateDoesNotWriteIsRefusedOrNoted) {
  put_template(kKnown);
  const Json user = message("user", "q"), answer = message("assistant", "a");
  expect_user_error(
      [&] {
        tokens_of(chat_of({message("developer", "Be terse."), user, answer}));
      },
      {"x: messages[0]: ", "nothing of what the role \"developer\" says", "\"system\""});
  expect_user_error(
      [&] {
        tokens_of(chat_of({user, calls({{"city", "Oslo"}}), message("tool", "3"), answer}));
      },
      {"x: messages[1]: ", "an empty answer would be learned"});
  expect_user_error(
      [&] {
        tokens_of(chat_of({user, answer, message("function", "3"), answer}));
      },
      {"x: messages[2]: ", "\"function\""});
  expect_user_error(
      [&] {
        tokens_of(chat_of({message("developer", "Be terse."), user, answer}), TrainOn::kAll);
      },
      {"\"developer\""});
  expect_user_error(
      [&] {
        tokens_of(chat_of({user, {{"role", "assistant"}, {"content", nullptr}, {"function_call", {{"name", "f"}}}}}));
      },
      {"x: messages[1].content: missing, and \"function_call\" is not read; write \"tool_calls\""});
  EXPECT_EQ(learned(chat_of({message("developer", " "), user, answer})), "a<|e|>\n") << "nothing is said";
  Json sample = chat_of({with(user, "name", "Ann"), with(with(answer, "id", 7), "reasoning_content", "t")});
  sample["tools"] = {{{"name", "w"}}};
  sample["chat_template_kwargs"] = {{"enable_thinking", false}};
  sample["source"] = "web";
  EXPECT_EQ(unused(sample),
            (std::set<std::string>{"\"source\"", "\"chat_template_kwargs.enable_thinking\"", "\"messages[].id\"",
                                   "\"messages[].name\"", "\"messages[].reasoning_content\"", "\"tools\""}));
  const Json both = chat_of({user, with(calls({{"a", 1}}), "content", "I look.")});
  EXPECT_EQ(unused(both), (std::set<std::string>{"\"messages[].tool_calls\""})) << "a call beside words";
  put_template(
      "{% for m in messages %}{{ '<|s|>' + m.role + (' to ' if m.urgent else '') + '\\n' + m.content + '<|e|>\\n' }}{% "
      "endfor %}{% if add_generation_prompt %}{{ '<|s|>assistant\\n' + ('[]' if quiet else '') }}{% endif %}");
  sample = chat_of({with(user, "urgent", true), answer});
  sample["chat_template_kwargs"] = {{"quiet", false}};
  EXPECT_EQ(unused(sample), (std::set<std::string>{"\"chat_template_kwargs.quiet\""}))
      << "a part without letters may have an effect";
  sample["chat_template_kwargs"] = Json::object();
  for (int n = 0; n < 101; ++n) sample["chat_template_kwargs"]["k" + std::to_string(n)] = n;
  expect_user_error([&] { unused(sample); }, {"x: has more than 100 keys that the chat template may not read"});
  sample["chat_template_kwargs"] = {{"messages", 1}};
  expect_user_error([&] { tokens_of(sample); }, {"x: chat_template_kwargs.messages: leave it out"});
}

// At inference the prompt contains text that the template adds only to the last question, as
// Mistral's does.
TEST_F(ChatRecords, AReplyIsLearnedBehindThePromptThatAsksForIt) {
  put_template(
      "{% set s = messages[0].content if messages[0].role == 'system' else '' %}{% for m in messages %}{% if m.role == "
      "'user' %}{{ '<|s|>' + (s + '\\n\\n' if s and loop.last else '') + m.content + '<|s|>' }}"
      "{% elif m.role == 'assistant' %}{{ ' ' + m.content + '<|e|>' }}{% endif %}{% endfor %}");
  const Json system = message("system", "Be terse."),
             one = chat_of({system, message("user", "q"), message("assistant", "a")});
  EXPECT_EQ(tokens_of(one).text, "<|s|>Be terse.\n\nq<|s|> a<|e|>");
  EXPECT_EQ(learned(one), " a<|e|>");
  const ChatRecord two = read(chat_of(
      {system, message("user", "q"), message("assistant", "a"), message("user", "r"), message("assistant", "b")}));
  ASSERT_EQ(two.samples.size(), 2u);
  EXPECT_EQ(two.samples[1].text, "<|s|>q<|s|> a<|e|><|s|>Be terse.\n\nr<|s|> b<|e|>");
  // With this template the generation prompt begins a thought ("["), which the first reply does not
  // have. The reply is refused.
  put_template(
      "{% for m in messages %}{{ '<|s|>' + m.role + '\\n' + m.content + '<|e|>\\n' }}{% endfor %}{% if "
      "add_generation_prompt %}{{ '<|s|>assistant\\n[' }}{% endif %}");
  expect_user_error(
      [&] {
        tokens_of(chat_of({message("user", "q"), message("assistant", "a")}));
      },
      {"x: ", "leaves out of the answer", "{% generation %}"});
  EXPECT_EQ(learned(chat_of({message("user", "q"), message("assistant", "[t]a")})), "t]a<|e|>\n");
}

TEST_F(ChatRecords, TheAssistantMayBegin) {
  put_template(std::string("{% if messages[0].role != 'system' %}{{ '<|s|>system\\nYou help.<|e|>\\n' }}{% endif %}") +
               kTurns);
  EXPECT_EQ(learned(chat_of({message("assistant", "Hello"), message("user", "q"), message("assistant", "a")})),
            "Hello<|e|>\n|a<|e|>\n");
  put_template(
      "{% if messages[0].role != 'system' %}{{ '<|s|>' }}{% endif %}{% for m in messages %}{{ m.content + '<|e|>' }}{% "
      "endfor %}");
  EXPECT_EQ(learned(chat_of({message("assistant", "Hello"), message("user", "q"), message("assistant", "a")})),
            "Hello<|e|>|a<|e|>");
  put_template(kTurns);
  EXPECT_EQ(learned(chat_of({message("assistant", "Hello"), message("user", "q")})), "Hello<|e|>\n|");
}

TEST_F(ChatRecords, TemplatesHaveNames) {
  std::filesystem::remove(folder.file("chat_template.jinja"));
  put_file(folder.file("tokenizer_config.json"),
           Json{{"eos_token", "<|e|>"},
                {"chat_template",
                 {{{"name", "default"}, {"template", kTurns}},
                  {{"name", "tool_use"}, {"template", std::string("T{{ tools | tojson }}") + kTurns}},
                  {{"name", "wrong"}, {"template", "{% include %}"}}}}}
               .dump());
  Json sample = chat_of({message("user", "q"), message("assistant", "a")});
  EXPECT_EQ(tokens_of(sample).text[0], '<');
  sample["tools"] = Json::array();
  EXPECT_EQ(tokens_of(sample).text[0], '<') << "no tools";
  sample["tools"] = {{{"name", "w"}}};
  EXPECT_EQ(tokens_of(sample).text.rfind(R"(T[{"name": "w"}])", 0), 0u);
  settings.template_name = "default";
  EXPECT_EQ(tokens_of(sample).text[0], '<');
  EXPECT_EQ(unused(sample), (std::set<std::string>{"\"tools\""}));
  settings.template_name = "rag";
  expect_user_error([&] { tokens_of(sample); },
                    {folder.path() +
                     ": has no chat template \"rag\" (data.chat_template), but \"default\", \"tool_use\", \"wrong\""});
  settings.template_name = "wrong";
  expect_user_error([&] { tokens_of(sample); }, {"chat template \"wrong\", line 1:", "\"include\""});
}

TEST_F(ChatRecords, VariablesOfTheTemplateComeFromRecordAndRecipe) {
  put_template(
      "{% for m in messages %}{{ '<|s|>' + m.role + '\\n' + m.content + '<|e|>\\n' }}{% endfor %}{{ mood }}{% if "
      "add_generation_prompt %}{{ '<|s|>assistant\\n' }}{% endif %}");
  Json sample = chat_of({message("user", "q"), message("assistant", "a")});
  const auto end_of = [&] {
    return tokens_of(sample, TrainOn::kAll).text.substr(tokens_of(sample, TrainOn::kAll).text.rfind('\n') + 1);
  };
  EXPECT_EQ(end_of(), "");
  settings.template_kwargs = R"({"mood": "calm"})";
  EXPECT_EQ(end_of(), "calm");
  sample["chat_template_kwargs"] = R"({"mood": "glad"})";
  EXPECT_EQ(end_of(), "glad") << "the record knows better; JSON in a text";
  const nlohmann::json keys = {{"control_tokens", false},
                               {"chat_template", "default"},
                               {"chat_template_kwargs", {{"mood", "calm"}}}};
  const Recipe read = recipe("", keys);
  EXPECT_EQ(parse_recipe(canonical_recipe(read), "c.json", "/"), read);
  EXPECT_EQ(read.data.chat, (ChatSettings{"default", R"({"mood":"calm"})", false}));
  expect_user_error(
      [&] {
        recipe("", {{"chat_template_kwargs", 3}});
      },
      {"data.chat_template_kwargs", "must be an object"});
  expect_user_error(
      [&] {
        recipe("", {{"chat_template_kwargs", {{"tools", 3}}}});
      },
      {"data.chat_template_kwargs", "\"tools\""});
  expect_user_error(
      [&] {
        recipe("", {{"kind", "text"}, {"chat_template", "x"}});
      },
      {"data.chat_template", "\"chat\""});
}

// Like Phi-4-mini's template: it builds a token from a role.
TEST_F(ChatRecords, ARoleMayBePartOfAToken) {
  put_template(
      "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|e|>' }}{% endfor %}{% if add_generation_prompt "
      "%}{{ '<|assistant|>' }}{% endif %}");
  nlohmann::json tokenizer = byte_tokenizer(false);
  for (const char* name : {"<|user|>", "<|assistant|>"}) {
    tokenizer["added_tokens"].push_back({{"id", 256 + tokenizer["added_tokens"].size()},
                                         {"content", name},
                                         {"single_word", false},
                                         {"lstrip", false},
                                         {"rstrip", false},
                                         {"normalized", false},
                                         {"special", true}});
  }
  put_file(folder.file("tokenizer.json"), tokenizer.dump());
  EXPECT_EQ(tokens_of(chat_of({message("user", "a"), message("assistant", "b")})).ids,
            (std::vector<int32_t>{258, 'a', kEnd, 259, 'b', kEnd}));
  const ChatTokens two = tokens_of(chat_of({message("user|><|assistant", "a"), message("assistant", "b")}));
  EXPECT_EQ(std::count(two.ids.begin(), two.ids.end(), 258), 0) << "a role ends no token";
  EXPECT_EQ(std::count(two.ids.begin(), two.ids.end(), 259), 1);
  put_template("{% for m in messages %}{{ '<|' + m.content + '|>' + '<|e|>' }}{% endfor %}");
  EXPECT_EQ(tokens_of(chat_of({message("user", "user"), message("assistant", "assistant")}), TrainOn::kAll).ids.size(),
            2u * (1 + 4) + 4 + 9)
      << "words make none";
}

// The assistant's text may contain tokens that the template does not write, such as Llama 3's
// <|python_tag|>. In other messages this text is read as letters.
TEST_F(ChatRecords, TheAssistantMayWriteControlTokens) {
  nlohmann::json tokenizer = byte_tokenizer(false);
  tokenizer["added_tokens"].push_back({{"id", 258},
                                       {"content", "<|p|>"},
                                       {"single_word", false},
                                       {"lstrip", false},
                                       {"rstrip", false},
                                       {"normalized", false},
                                       {"special", true}});
  put_file(folder.file("tokenizer.json"), tokenizer.dump());
  const Json sample = chat_of({message("user", "<|p|>"), message("assistant", "<|p|>w<|e|>")});
  const auto count = [](const ChatRecord& record, int32_t id) {
    return std::count(record.samples[0].ids.begin(), record.samples[0].ids.end(), id);
  };
  const ChatRecord read = this->read(sample);
  EXPECT_EQ(count(read, 258), 1);
  EXPECT_EQ(count(read, kEnd), 2);
  EXPECT_EQ(read.notes.letters, (std::map<std::string, uint64_t>{{"\"<|e|>\"", 1}, {"\"<|p|>\"", 1}}));
  settings.control_tokens = false;
  EXPECT_EQ(count(this->read(sample), 258), 0);
  EXPECT_EQ(this->read(sample).notes.letters, (std::map<std::string, uint64_t>{{"\"<|e|>\"", 1}, {"\"<|p|>\"", 2}}));
  EXPECT_EQ(tokens_of({{"text", "<|s|>a<|e|>"}}).ids.size(), 5u + 1 + 5 + 1);
  settings.control_tokens = true;
  EXPECT_EQ(tokens_of({{"text", "<|s|>a<|e|>"}}).ids, (std::vector<int32_t>{kBegin, 'a', kEnd})) << "no second end";
}

// A token with rstrip or lstrip removes the white space next to it, also if the white space is in a
// message. The ids must equal those of the whole text, tokenised at once.
TEST_F(ChatRecords, TokensTakeWhiteSpaceOfMessages) {
  nlohmann::json tokenizer = byte_tokenizer(false);
  tokenizer["added_tokens"][0]["rstrip"] = true;
  tokenizer["added_tokens"][1]["lstrip"] = true;
  put_file(folder.file("tokenizer.json"), tokenizer.dump());
  put_template(
      "{% for m in messages %}{{ '<|s|>' + m.content + '<|e|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|s|>' "
      "}}{% endif %}");
  const Json sample = chat_of({message("user", " \na "), message("assistant", "  b \n")});
  const ChatTokens tokens = tokens_of(sample);
  EXPECT_EQ(tokens.ids, (std::vector<int32_t>{kBegin, 'a', kEnd, kBegin, 'b', kEnd}));
  EXPECT_EQ(tokens.ids, ChatModel(ModelFiles::open(folder.path())).tokenizer().encode(tokens.text, true));
  EXPECT_EQ(tokens.labels, (std::vector<int32_t>{-100, -100, -100, -100, 'b', kEnd}))
      << "a token that took a learned space is not learned";
}

// Compares with the ids that the tokenizers library gives for a whole rendered text. There are
// tokens with each setting (tests/parity/chat_records.py).
TEST_F(ChatRecords, AddedTokensAreFoundAsInTheWholeText) {
  std::ifstream file("tests/golden/chat/added_tokens.json");
  const Json goldens = Json::parse(file);
  ASSERT_EQ(goldens.size(), 25u);
  put_file(folder.file("tokenizer_config.json"), "{}");
  for (const Json& golden : goldens) {
    nlohmann::json tokenizer = byte_tokenizer(false);
    for (const auto& [n, name, flags] : {std::tuple(0, "<s>", golden["begin"]), std::tuple(1, "<e>", golden["end"])}) {
      tokenizer["added_tokens"][n]["content"] = name;
      tokenizer["added_tokens"][n].update(nlohmann::json(flags));
    }
    put_file(folder.file("tokenizer.json"), tokenizer.dump());
    put_template(golden["template"]);
    const ChatModel model{ModelFiles::open(folder.path())};
    for (const Json& one : golden["cases"]) {
      EXPECT_EQ(joined(model.read({{"messages", one["messages"]}}, TrainOn::kAll, "x").samples).ids,
                one["ids"].get<std::vector<int32_t>>())
          << golden["begin"] << golden["end"] << one["messages"];
    }
  }
}

TEST_F(ChatRecords, ALongConversationIsRefused) {
  Json sample = chat_of({});
  for (int n = 0; n < 1001; ++n) {
    sample["messages"].push_back(message("user", "a"));
    sample["messages"].push_back(message("assistant", "b"));
  }
  expect_user_error([&] { tokens_of(sample); }, {"x: has 2002 messages; at most 2000"});
  EXPECT_GT(tokens_of(sample, TrainOn::kAll).ids.size(), 2002u);
  put_template(kMarked);
  EXPECT_GT(tokens_of(sample).ids.size(), 2002u);
}

// Warnings have one line for each kind of note, with a count.
TEST_F(ChatRecords, NotesOfAFileAreCounted) {
  put_template(kKnown);
  const Json first = {{"messages", {message("user", "<|e|>"), with(message("assistant", "a"), "id", 1)}},
                      {"source", "x"}},
             second = {{"messages", {message("user", "q"), with(message("assistant", "b"), "id", 2)}}};
  const std::string path = folder.file("x.jsonl");
  const auto warnings =
      open_dataset(recipe(second.dump() + "\n" + first.dump() + "\n", nlohmann::json::object(), 64), Split::kTraining)
          ->warnings();
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_EQ(warnings[0], path +
                             ": not read, or without effect on what is read: \"messages[].id\" in 2 records, "
                             "\"source\" in 1 record; the first: " +
                             path + ", line 1");
  EXPECT_EQ(warnings[1],
            path + ": control tokens that are spelled in texts are read as letters: \"<|e|>\" 1 time; the first: " +
                path + ", line 2");
}

// Tools and variables in a record of preferences are part of the prompts of both answers.
TEST_F(ChatRecords, PreferencesHaveTools) {
  put_template(kTools);
  const ChatModel model{ModelFiles::open(folder.path())};
  const Json prompt = Json::array({message("user", "q")}), answer = Json::array({message("assistant", "a")});
  const auto text = [&](const Json& record) {
    ReadingNotes notes;
    const AnswerTokens tokens = model.answer_tokens(prompt, answer, record, "x", notes);
    EXPECT_TRUE(notes.unused.empty());
    EXPECT_EQ(tokens.ids[tokens.begin], 'a');
    return model.tokenizer().decode(tokens.ids);
  };
  EXPECT_EQ(text(Json::object()), "<|s|>user\nq<|e|>\n<|s|>assistant\na<|e|>\n");
  const std::string with_tools = "<|s|>system\n{\"name\": \"w\"}<|e|>\n<|s|>user\nq<|e|>\n<|s|>assistant\na<|e|>\n";
  EXPECT_EQ(text({{"tools", {{{"name", "w"}}}}}), with_tools);
  EXPECT_EQ(text({{"tools", R"([{"name": "w"}])"}}), with_tools);
  ReadingNotes notes;
  expect_user_error(
      [&] {
        model.answer_tokens(prompt, answer, {{"tools", 3}}, "x", notes);
      },
      {"x: tools: must be a list, not an integer"});
  put_template(kKnown);
  const Json pair = {{"prompt", prompt},
                     {"chosen", answer},
                     {"rejected", {message("assistant", "b")}},
                     {"tools", {{{"name", "w"}}}},
                     {"margin", 1}};
  put_file(folder.file("p.jsonl"), pair.dump());
  const nlohmann::json all = {{"model", {{"huggingface", folder.path()}}},
                              {"batch", 1},
                              {"sequence", 64},
                              {"loss", {{"kind", "orpo"}}},
                              {"data", {{"kind", "preferences"}, {"path", folder.file("p.jsonl")}}}};
  const auto warnings = open_dataset(parse_recipe(all.dump(), "r.json", "/"), Split::kTraining)->warnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(
      warnings[0],
      folder.file("p.jsonl") +
          ": not read, or without effect on what is read: \"margin\" in 1 record, \"tools\" in 1 record; the first: " +
          folder.file("p.jsonl") + ", line 1");
  const Json texts = {{"prompt", "q"}, {"chosen", "<|e|>a<|e|>"}, {"rejected", "b"}};
  ReadingNotes none;
  EXPECT_EQ(model.answer_tokens(texts["prompt"], texts["chosen"], texts, "x", none).ids,
            (std::vector<int32_t>{'q', kEnd, 'a', kEnd}))
      << "texts spell tokens";
}

TEST_F(ChatRecords, ATextFileSpellsControlTokens) {
  const std::string text = "ab<|e|>cd<|s|>ef<|e|>gh";
  const auto tokens = [&](const nlohmann::json& change, size_t count) {
    nlohmann::json data = {{"kind", "text"}};
    data.update(change);
    const Recipe reading = recipe("", data, static_cast<int>(count) - 1, 1);
    put_file(folder.file("x.jsonl"), text);
    const auto dataset = open_dataset(reading, Split::kTraining);
    return std::pair(dataset->size(), dataset->warnings());
  };
  const nlohmann::json as_it_is = nlohmann::json::object();
  EXPECT_EQ(tokens(as_it_is, 12).first, 1u) << "8 letters, three tokens, and the end";
  EXPECT_TRUE(tokens(as_it_is, 12).second.empty());
  const auto [windows, warnings] = tokens({{"control_tokens", false}}, 24);
  EXPECT_EQ(windows, 1u);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("read as letters: \"<|e|>\" 2 times, \"<|s|>\" 1 time"), std::string::npos) << warnings[0];
  expect_user_error([&] { tokens(as_it_is, 13); }, {"too short: 12 tokens"});
}

}  // namespace
}  // namespace reprise
