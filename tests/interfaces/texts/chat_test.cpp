// Tests conversations: the meaning of a sample, which tokens are read and which are learned, how
// rows are packed, and what is refused. A mask that is shifted by one token trains a model on the
// wrong tokens without an error.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/interfaces/expect_user_error.h"
#include "tests/interfaces/host_sink.h"
#include "tests/interfaces/texts/chat_fixture.h"
#include "tools/files/chat/chat_tokens.h"
#include "tools/files/formats/json_lines.h"
#include "tools/files/formats/record_file.h"
#include "tools/run/data/check_data.h"
#include "tools/run/data/dataset.h"
#include "tools/run/texts/first_fit.h"

namespace reprise {
namespace {

TEST_F(Chat, TheAssistantAndTheEndOfItsTurnAreLearned) {
  const Json two = chat_of({message("system", "s"), message("user", "a"), message("assistant", "bc"),
                            message("user", "d"), message("assistant", "")});
  EXPECT_EQ(learned(two), "bc<|e|>\n|<|e|>\n");
  EXPECT_EQ(
      learned(two, TrainOn::kAll),
      "<|s|>system\ns<|e|>\n<|s|>user\na<|e|>\n<|s|>assistant\nbc<|e|>\n<|s|>user\nd<|e|>\n<|s|>assistant\n<|e|>\n");
  put_file(folder.file("chat_template.jinja"), kMarked);
  EXPECT_EQ(learned(two), "bc<|e|>|<|e|>|") << "the template's own marks";
}

TEST_F(Chat, EveryFormOfASampleIsRead) {
  const std::string asked = "<|s|>user\nq<|e|>\n<|s|>assistant\n", answered = "r<|e|>\n";
  EXPECT_EQ(tokens_of({{"prompt", "q"}, {"completion", "r"}}).text, asked + answered);
  EXPECT_EQ(tokens_of({{"instruction", "q"}, {"input", ""}, {"output", "r"}}).text, asked + answered);
  EXPECT_EQ(tokens_of({{"instruction", "q"}, {"input", "i"}, {"output", "r"}}).text,
            "<|s|>user\nq\n\ni<|e|>\n<|s|>assistant\nr<|e|>\n");
  const Json lists = {{"prompt", {message("user", "q"), message("assistant", "x"), message("user", "q")}},
                      {"completion", {message("assistant", "r")}}};
  EXPECT_EQ(learned(lists), "r<|e|>\n") << "a prompt's assistant is not learned";
  EXPECT_EQ(tokens_of({{"prompt", "q"}, {"response", "r"}}).text, asked + answered);
  EXPECT_EQ(tokens_of({{"question", "q"}, {"answer", "r"}, {"system", ""}}).text, asked + answered);
  EXPECT_EQ(tokens_of({{"instruction", "q"}, {"context", ""}, {"response", "r"}, {"category", "c"}}).text,
            asked + answered);
  EXPECT_EQ(tokens_of({{"system", "s"}, {"prompt", "q"}, {"completion", "r"}}).text,
            "<|s|>system\ns<|e|>\n" + asked + answered);
  EXPECT_EQ(tokens_of({{"query", "q"}, {"response", "r"}}).text, asked + answered);
  EXPECT_EQ(tokens_of({{"input", "q"}, {"output", "r"}}).text, asked + answered);
  EXPECT_EQ(tokens_of({{"content", "t"}}).ids, (std::vector<int32_t>{'t', kEnd}));
  EXPECT_EQ(tokens_of({{"text", "t"}, {"question", "q"}, {"input", "i"}}).ids.size(), 2u)
      << "a question beside another form is not read";
  put_file(folder.file("chat_template.jinja"), kMarked);
  EXPECT_EQ(learned(lists), "r<|e|>|");
  EXPECT_EQ(tokens_of({{"text", "<|s|>"}}).ids, (std::vector<int32_t>{kBegin, kEnd})) << "a token, and eos";
}

Json said(const char* from, const std::string& value) { return {{"from", from}, {"value", value}}; }
Json shared(std::initializer_list<Json> turns) { return {{"conversations", Json(Json::array_t(turns))}}; }

TEST_F(Chat, ShareGptsSpeakersBecomeRoles) {
  const Json same = chat_of({message("system", "s"), message("user", "q"), message("assistant", "r"),
                             message("user", "t"), message("assistant", "u")});
  Json sample =
      shared({said("system", "s"), said("human", "q"), said("gpt", "r"), said("user", "t"), said("assistant", "u")});
  EXPECT_EQ(tokens_of(sample).labels, tokens_of(same).labels);
  EXPECT_EQ(learned(sample), "r<|e|>\n|u<|e|>\n");
  sample = shared({said("human", "q"), said("gpt", "r"), said("human", "t"), said("gpt", "u")});
  sample["system"] = "s";
  EXPECT_EQ(tokens_of(sample).labels, tokens_of(same).labels) << "the system beside them";
  sample = {{"conversations", same["messages"]}};
  EXPECT_EQ(tokens_of(sample).labels, tokens_of(same).labels) << "roles in the place of speakers";
  put_file(folder.file("chat_template.jinja"),
           "{% for m in messages %}{{ m.role ~ ':' ~ (m.tool_calls | tojson if m.tool_calls else m.content) ~ ';' }}{% "
           "endfor %}{{ tools | tojson }}");
  sample = shared({said("human", "q"), said("function_call", R"({"name": "f", "arguments": {"a": 1}})"),
                   said("observation", "o"), said("gpt", "r")});
  sample["tools"] = R"([{"name": "f"}])";
  EXPECT_EQ(
      tokens_of(sample, TrainOn::kAll).text,
      R"(user:q;assistant:[{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}];tool:o;assistant:r;[{"name": "f"}])");
}

TEST_F(Chat, NobodyTypesAControlToken) {
  const ChatTokens tokens = tokens_of(chat_of({message("<|s|>", "a<|e|>"), message("assistant", "<|e|><|s|>")}));
  EXPECT_EQ(std::count(tokens.ids.begin(), tokens.ids.end(), kBegin), 2);
  EXPECT_EQ(std::count(tokens.ids.begin(), tokens.ids.end(), kEnd), 2);
  EXPECT_EQ(tokens.text, "<|s|><|s|>\na<|e|><|e|>\n<|s|>assistant\n<|e|><|s|><|e|>\n");
  EXPECT_EQ(Tokenizer::open(folder.path())->decode(tokens.ids), tokens.text);
}

// Unicode composition changes the positions of bytes. The labels must stay with their tokens.
TEST_F(Chat, LabelsStayWhereTheTokenizerComposes) {
  put_file(folder.file("tokenizer.json"), byte_tokenizer(true).dump());
  const std::string apart = "e\xcc\x81", composed = "\xc3\xa9";
  const Json sample = chat_of({message("user", apart + apart), message("assistant", apart)});
  EXPECT_EQ(learned(sample), composed + "<|e|>\n");
  // In this template no control token is between the messages.
  put_file(folder.file("chat_template.jinja"), "{% for m in messages %}{{ m.content + ';' }}{% endfor %}");
  EXPECT_EQ(learned(sample), composed + ";");
}

// Like Qwen3's template: it writes a thought before a reply only if no question follows the reply.
constexpr const char* kThinking =
    "{% set ns = namespace(last=0) %}{% for i in range(messages | length - 1, -1, -1) %}{% if messages[i].role == "
    "'user' and not ns.last %}"
    "{% set ns.last = i %}{% endif %}{% endfor %}"
    "{% for m in messages %}{{ '<|s|>' + m.role + '\\n' }}{% if m.role == 'assistant' and loop.index0 > ns.last %}{{ "
    "'[' ~ (m.thought or '') ~ ']' }}{% endif %}"
    "{{ m.content ~ (m.tool_calls | tojson if m.tool_calls else '') ~ '<|e|>\\n' }}{% endfor %}{% if "
    "add_generation_prompt %}{{ '<|s|>assistant\\n' }}{% endif %}";

// If the template writes a reply differently in the whole conversation, the reply is learned in a
// separate sample. This sample has the prompt that the model gets at inference.
TEST_F(Chat, EveryReplyIsLearnedAsTheModelIsAskedForIt) {
  put_file(folder.file("chat_template.jinja"), kThinking);
  const auto thinks = [](Json one, const char* thought) {
    one["thought"] = thought;
    return one;
  };
  const Json sample = chat_of({message("system", "s"), message("user", "a"), thinks(message("assistant", "b"), "v"),
                               message("user", "c"), message("assistant", "d]"), message("user", "x"),
                               thinks(message("assistant", "e"), "t")});
  const ChatRecord record = read(sample);
  ASSERT_EQ(record.samples.size(), 3u);
  EXPECT_EQ(record.samples[0].text, "<|s|>system\ns<|e|>\n<|s|>user\na<|e|>\n<|s|>assistant\n[v]b<|e|>\n");
  EXPECT_EQ(
      record.samples[1].text,
      "<|s|>system\ns<|e|>\n<|s|>user\na<|e|>\n<|s|>assistant\nb<|e|>\n<|s|>user\nc<|e|>\n<|s|>assistant\n[]d]<|e|>\n");
  EXPECT_EQ(learned(sample), "[v]b<|e|>\n|[]d]<|e|>\n|[t]e<|e|>\n");
  EXPECT_TRUE(record.notes.unused.empty()) << "an earlier thought is learned where it is written";
  Json call = message("assistant", "");
  call["tool_calls"] = {{{"name", "f"}}};
  call["thought"] = "u";
  const Json tools = chat_of({message("user", "a"), call, message("tool", "o"), message("assistant", "r"),
                              message("user", "c"), message("assistant", "d")});
  EXPECT_EQ(learned(tools), R"([u][{"name": "f"}]<|e|>)" "\n" "|[]r<|e|>\n|[]d<|e|>\n");
  EXPECT_EQ(read(tools).samples.size(), 2u) << "what follows the last question is one sample";
  Json unsaid = sample;
  unsaid["messages"][2]["content"] = "";
  EXPECT_EQ(learned(unsaid), "[v]<|e|>\n|[]d]<|e|>\n|[t]e<|e|>\n");
}

// Like Phi-3's template: unless a generation prompt is added, the text ends with a token that
// begins with the same bytes as the generation prompt. The token belongs only to the last reply.
TEST_F(Chat, ALastTokenBehindAllBelongsToTheLastReply) {
  put_file(folder.file("chat_template.jinja"),
           "{% for m in messages %}{{ '<|s|>' + m.role + '\\n' + m.content + '<|e|>\\n' }}{% endfor %}"
           "{% if add_generation_prompt %}{{ '<|s|>assistant\\n' }}{% else %}{{ eos_token }}{% endif %}");
  EXPECT_EQ(learned(chat_of({message("user", "a"), message("assistant", "b")})), "b<|e|>\n<|e|>");
  const Json two = chat_of({message("system", "s"), message("user", "a"), message("assistant", "b"),
                            message("user", "c"), message("assistant", "")});
  EXPECT_EQ(learned(two), "b<|e|>\n|<|e|>\n<|e|>");
}

// New tokens are cut out of the text and end a reply, as control tokens do.
TEST_F(Chat, NewTokensAreReadAsThoseOfControl) {
  for (const char* last : {"", "{% if not add_generation_prompt %}{{ '<|e|>' }}{% endif %}"}) {
    put_file(folder.file("tokenizer.json"), byte_tokenizer(false).dump());
    put_file(folder.file("chat_template.jinja"), std::string(kTurns) + last);
    const Json two =
        chat_of({message("user", "a"), message("assistant", "b"), message("user", "c"), message("assistant", "d")});
    const Json written = chat_of({message("user", "<|e|>"), message("assistant", "b")});
    const ChatTokens control = tokens_of(two), letters = tokens_of(written);
    Json without = byte_tokenizer(false);
    without["added_tokens"] = Json::array();
    put_file(folder.file("tokenizer.json"), without.dump());
    put_file(folder.file("tokenizer_config.json"), "{}");
    const ModelPlace place = {.huggingface = folder.path(), .gguf = "", .new_tokens = {"<|s|>", "<|e|>"}};
    const ChatTokens added = joined(ChatModel(ModelFiles::open(place)).read(two, TrainOn::kAssistant, "x").samples);
    EXPECT_EQ(added.ids, control.ids);
    EXPECT_EQ(added.labels, control.labels);
    // Unlike control tokens, new tokens are also recognised in messages.
    const ChatTokens read = joined(ChatModel(ModelFiles::open(place)).read(written, TrainOn::kAssistant, "x").samples);
    EXPECT_EQ(std::count(read.ids.begin(), read.ids.end(), kEnd),
              std::count(letters.ids.begin(), letters.ids.end(), kEnd) + 1);
  }
}

// Like the templates of Llama-2, Mistral and Gemma, with a vocabulary of SentencePiece's
// characters. If the tokenizer puts a space before a text, the labels must not move.
TEST_F(Chat, LabelsOfCharactersAreOfTheReplies) {
  const auto all = small_tokenizers();
  const Json two = chat_of({message("user", "it's"), message("assistant", "of the world"), message("user", " 12"),
                            message("assistant", "\u5b57 a")});
  put_file(folder.file("tokenizer_config.json"), R"({"bos_token": "<s>", "eos_token": "</s>"})");
  put_file(folder.file("chat_template.jinja"),
           "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content.strip() + ' "
           "[/INST]' }}{% else %}"
           "{{ ' ' + m.content + ' ' + eos_token }}{% endif %}{% endfor %}");
  for (const char* name : {"llama2", "phi3", "mistral", "gemma"}) {
    SCOPED_TRACE(name);
    put_file(folder.file("tokenizer.json"), all.at(name).json.dump());
    EXPECT_EQ(learned(two), " of the world </s>| \u5b57 a </s>");
    const ChatTokens tokens = tokens_of(two);
    EXPECT_EQ(tokens.text, "<s>[INST] it's [/INST] of the world </s>[INST] 12 [/INST] \u5b57 a </s>");
    EXPECT_EQ(tokens.ids.front(), 1);
  }
  // With Gemma's roles, the first bytes of a reply follow a newline and not a control token.
  put_file(folder.file("chat_template.jinja"),
           "{{ bos_token }}{% for m in messages %}{{ '<s>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + "
           "m.content | trim + '<end>\\n' }}{% endfor %}"
           "{% if add_generation_prompt %}{{ '<s>model\\n' }}{% endif %}");
  EXPECT_EQ(learned(two), "of the world<end>\n|\u5b57 a<end>\n");
}

TEST_F(Chat, PartsOfTextAreOneText) {
  const Json parts = {{{"type", "text"}, {"text", "a"}}, {{"type", "text"}, {"text", "b"}}};
  Json sample = chat_of({message("user", ""), message("assistant", "c")});
  sample["messages"][0]["content"] = parts;
  EXPECT_EQ(tokens_of(sample).text, "<|s|>user\na\nb<|e|>\n<|s|>assistant\nc<|e|>\n");
  put_file(folder.file("chat_template.jinja"),
           "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ "
           "p.text }}{% endfor %}{% endif %};{% endfor %}");
  EXPECT_EQ(tokens_of(sample).text, "ab;c;") << "the template goes over them itself";
  put_file(folder.file("chat_template.jinja"),
           "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% endif %};{% endfor %}");
  EXPECT_EQ(tokens_of(sample).text, "a\nb;c;") << "a template that would leave them out";
  sample["messages"][0]["content"][1] = {{"type", "image"}, {"url", "x"}};
  expect_user_error([&] { tokens_of(sample); }, {"x: messages[0].content[1].type: ", "\"text\"", "not \"image\""});
  sample["messages"][0]["content"][1] = {{"type", "text"}};
  expect_user_error([&] { tokens_of(sample); }, {"x: messages[0].content[1].text: missing"});
}

TEST_F(Chat, RefusesWhatItCannotMark) {
  const Json two =
      chat_of({message("user", "a"), message("assistant", "b"), message("user", "c"), message("assistant", "d")});
  put_file(folder.file("chat_template.jinja"),
           "{% for m in messages %}{{ m.content }}{% if loop.last %}!{% endif %}{% endfor %}");
  expect_user_error([&] { tokens_of(two); }, {"x: ", "first 3 of 4 messages", "{% generation %}"});
  EXPECT_EQ(tokens_of(two, TrainOn::kAll).text, "abcd!");
  put_file(folder.file("chat_template.jinja"), "{{ messages[0].content.more.still }}");
  expect_user_error([&] { tokens_of(two); }, {"x: ", folder.path() + ": chat template, line 1:", "is undefined"});
  put_file(folder.file("chat_template.jinja"), "{% include %}");
  expect_user_error([&] { tokens_of(two); }, {"chat template, line 1:", "\"include\""});
  put_file(folder.file("chat_template.jinja"), "");
  expect_user_error([&] { tokens_of(two); }, {"x: ", "no chat template"});
  EXPECT_EQ(tokens_of({{"text", "a"}}).ids.size(), 2u);
}

TEST_F(Chat, RefusesSamplesByField) {
  const struct {
    Json sample;
    std::initializer_list<std::string> fragments;
  } cases[] = {
      {Json::array(), {"x: ", "an object"}},
      {{{"other", 1}}, {"none of", "\"messages\""}},
      {{{"messages", Json::array()}}, {"messages", "empty"}},
      {{{"messages", "a"}}, {"messages", "a list"}},
      {{{"messages", {1, 2}}}, {"messages[0]", "an object"}},
      {chat_of({{{"content", "a"}}}), {"messages[0].role", "missing"}},
      {chat_of({{{"role", 1}, {"content", "a"}}}), {"messages[0].role", "a string"}},
      {chat_of({message("user", "a"), {{"role", "assistant"}}}), {"messages[1].content", "missing"}},
      {{{"prompt", "a"}}, {"completion", "missing"}},
      {{{"prompt", "a"}, {"completion", 5}}, {"completion", "a string"}},
      {{{"instruction", "a"}}, {"output", "missing"}},
      {{{"text", ""}}, {"text", "empty"}},
      {{{"text", "a"}, {"prompt", "b"}}, {"both"}},
      {chat_of({message("user", "a")}), {"nothing is learned"}},
      {{{"other", 1}, {"more\n", 2}}, {"\"conversations\"", "but \"other\", \"more\\n\""}},
      {{{"prompt", "a"}, {"completion", "b"}, {"response", "c"}}, {"response", "beside \"completion\""}},
      {{{"question", "a"}}, {"answer", "missing", "\"response\""}},
      {{{"input", "a"}}, {"output", "missing"}},
      {{{"question", "a"}, {"query", "b"}}, {"both"}},
      {{{"prompt", "a"}, {"completion", "b"}, {"system", 1}}, {"system", "a string"}},
      {{{"conversations", Json::array()}}, {"conversations", "empty"}},
      {{{"conversations", {1}}}, {"conversations[0]", "an object"}},
      {shared({{{"value", "a"}}}), {"conversations[0].from", "missing"}},
      {shared({said("human", "a"), {{"from", "gpt"}, {"value", nullptr}}}), {"conversations[1].value", "missing"}},
      {shared({said("narrator", "a")}), {"conversations[0].from", "\"human\"", "not \"narrator\""}},
      {shared({said("function_call", "{")}), {"conversations[0].value", "JSON of a call"}},
      {{{"conversations", {said("system", "a")}}, {"system", "b"}}, {"system", "conversations[0]"}},
      {{{"conversations", {said("gpt", "a")}}, {"text", "b"}}, {"both"}},
      {{{"messages", {message("assistant", "a")}}, {"tools", "x"}}, {"tools", "a list"}},
  };
  for (const auto& [sample, fragments] : cases) {
    SCOPED_TRACE(sample.dump());
    expect_user_error([&, &one = sample] { tokens_of(one); }, fragments);
  }
}

TEST(JsonLines, NamesFileAndLine) {
  const TemporaryFolder folder;
  const std::string path = folder.file("x.jsonl");
  put_file(path, "{\"b\": 1, \"a\": 2}\r\n\n  \n[1]");
  const JsonLines lines(path);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines.read(0).dump(), "{\"b\":1,\"a\":2}") << "keys keep their order";
  EXPECT_EQ(lines.read(1).dump(), "[1]");
  EXPECT_EQ(lines.place(1), path + ", line 4");
  put_file(path, "1\n\n{\"a\": 1, \"a\": 2}\n{\"a\" 1}\n\"\xff\"\n");
  const JsonLines bad(path);
  expect_user_error([&] { bad.read(1); }, {path + ", line 3:", "\"a\""});
  expect_user_error([&] { bad.read(2); }, {path + ", line 4:", "(column "});
  expect_user_error([&] { bad.read(3); }, {path + ", line 5:", "UTF-8"});
  put_file(path, " \n\n");
  expect_user_error([&] { JsonLines empty(path); }, {path, "no samples"});
}

// One set of records in three formats must give the same samples.
TEST(Records, AreTheSameInEveryFormat) {
  const TemporaryFolder folder;
  const std::string path = folder.file("x");
  const Json first = {{"prompt", "a, \"b\"\nc"}, {"response", "{[,]}\\"}},
             second = {{"prompt", ""}, {"response", "\u00e9"}};
  const std::string files[] = {
      first.dump() + "\n\n" + second.dump(),
      "\xef\xbb\xbf" + first.dump() + "\n" + second.dump() + "\n",
      Json::array({first, second}).dump(),
      "\n " + Json::array({first, second}).dump(2) + "\n",
      "\xef\xbb\xbfPrompt,response\r\n\"a, \"\"b\"\"\nc\",{[\x2c]}\\\r\n,\u00e9\r\n",
      "response, Prompt ,\n\"{[,]}\\\",\"a, \"\"b\"\"\nc\",0\n\n\u00e9,,1",
  };
  for (size_t n = 0; n < std::size(files); ++n) {
    SCOPED_TRACE(files[n]);
    put_file(path, n == 4 ? std::string(files[n]).replace(files[n].find("{[,]}"), 6, "\"{[,]}\\\"") : files[n]);
    const auto records = open_records(path);
    ASSERT_EQ(records->size(), 2u);
    EXPECT_EQ(nlohmann::json(records->read(0)), nlohmann::json(first));
    EXPECT_EQ(nlohmann::json(records->read(1)), nlohmann::json(second));
  }
  EXPECT_EQ(open_records(path)->place(1), path + ", line 5");
}

TEST(Records, NameRecordAndLine) {
  const TemporaryFolder folder;
  const std::string path = folder.file("x");
  const auto open = [&](const std::string& text) {
    put_file(path, text);
    return open_records(path);
  };
  const auto list = open("[{\"a\": 1},\n {\"a\":\n 1 2}, {\"b\": \"\xff\"}, {\"a\": [}}]");
  ASSERT_EQ(list->size(), 4u);
  EXPECT_EQ(list->read(0).dump(), "{\"a\":1}");
  expect_user_error([&] { list->read(1); }, {path + ", record 2 (line 2): ", "(line 3, column "});
  expect_user_error([&] { list->read(2); }, {path + ", record 3 (line 3): ", "UTF-8"});
  expect_user_error([&] { list->read(3); }, {path + ", record 4 (line 3): ", "(column "});
  const auto table = open("a,b\n1,2\n1\n1,2,3\n\"x\ny\"z,2\nx\"y,2\n1,\xff\n");
  ASSERT_EQ(table->size(), 6u);
  expect_user_error([&] { table->read(1); }, {path + ", line 3: ", "1 field, ", "2 columns"});
  expect_user_error([&] { table->read(2); }, {path + ", line 4: ", "3 fields, "});
  expect_user_error([&] { table->read(3); }, {path + ", line 5: field 1: ", "closing quote"});
  expect_user_error([&] { table->read(4); }, {path + ", line 7: field 1: ", "a quote"});
  expect_user_error([&] { table->read(5); }, {path + ", line 8: b: ", "UTF-8"});
  const struct {
    const char* text;
    std::initializer_list<std::string> fragments;
  } broken[] = {
      {"", {"no samples", "CSV"}},
      {" \n", {"no samples"}},
      {"[]", {"no samples", "list is empty"}},
      {"[{}\n", {", line 2: ", "\"]\" is missing"}},
      {"[{},\n]", {", line 2: ", "an element is missing before \"]\""}},
      {"[{},,{}]", {"missing before \",\""}},
      {"[{}}]", {"\"}\" ends nothing"}},
      {"[{}]\n\n{}", {", line 3: ", "follows the list"}},
      {"[\"]", {"\"]\" is missing"}},
      {"text", {"no samples", "header"}},
      {"a,A\nx,y", {", line 1, the header: ", "two columns", "\"a\""}},
      {",\nx,y", {"no column has a name"}},
      {"a\nb\n\"c\nd", {", line 3: ", "does not end"}},
      {"\"a\"b\nx", {"the header: field 1: ", "closing quote"}},
      {"\xff\nx", {"the header: not UTF-8"}},
  };
  for (const auto& [text, fragments] : broken) {
    SCOPED_TRACE(text);
    expect_user_error([&, text = text] { open(text); }, fragments);
  }
}

// Compares with a simple implementation of first fit.
TEST(FirstFit, IsTheFirstRowWithSpace) {
  uint64_t state = 1;
  for (int n = 0; n < 300; ++n) {
    std::vector<uint32_t> lengths(1 + n % 70);
    for (uint32_t& length : lengths) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      length = 1 + static_cast<uint32_t>(state >> 33) % 20;
    }
    std::vector<std::vector<uint32_t>> rows;
    std::vector<uint32_t> space;
    for (uint32_t i = 0; i < lengths.size(); ++i) {
      size_t row = 0;
      while (row < rows.size() && space[row] < lengths[i]) ++row;
      if (row == rows.size()) {
        rows.emplace_back();
        space.push_back(20);
      }
      rows[row].push_back(i);
      space[row] -= lengths[i];
    }
    const PackedRows packed = pack_first_fit(lengths, 20);
    ASSERT_EQ(packed.size(), rows.size());
    for (size_t row = 0; row < rows.size(); ++row) {
      EXPECT_EQ(std::vector<uint32_t>(packed.samples.begin() + static_cast<ptrdiff_t>(packed.begins[row]),
                                      packed.samples.begin() + static_cast<ptrdiff_t>(packed.begins[row + 1])),
                rows[row]);
    }
  }
}

struct Rows {
  std::vector<int32_t> tokens, labels, starts;
  uint64_t real = 0, labelled = 0;
};

Rows rows_of(Dataset& dataset, const Recipe& recipe, uint64_t step, uint64_t micro, bool with_starts) {
  const auto count = static_cast<size_t>(recipe.batch * recipe.sequence);
  Rows rows{std::vector<int32_t>(count, -9), std::vector<int32_t>(count, -9), std::vector<int32_t>(count, -9)};
  BatchSink sink = host_sink(rows.tokens.data(), count * sizeof(int32_t), rows.labels.data(), count,
                             with_starts ? rows.starts.data() : nullptr);
  rows.real = dataset.fill(step, micro, sink);
  EXPECT_TRUE(sink.status().ok()) << sink.status().message;
  rows.labelled = sink.labelled();
  return rows;
}

// Every token of a plain text is learned, so the expected rows are simple. They contain 3, 5 and 2
// letters with eos after each text, in rows of ten tokens.
TEST_F(Chat, RowsAreDocumentsOfTheirOwn) {
  const std::string lines = R"({"text": "abc"})" "\n" R"({"text": "defgh"})" "\n" R"({"text": "ij"})" "\n";
  const Recipe packing = recipe(lines, {{"pack", true}}, 10, 2);
  const auto dataset = open_dataset(packing, Split::kTraining);
  EXPECT_EQ(dataset->size(), 2u);
  const Rows rows = rows_of(*dataset, packing, 0, 0, true);
  const int32_t no = kIgnoredLabel;
  EXPECT_EQ(rows.tokens, (std::vector<int32_t>{'a', 'b', 'c',  kEnd, 'd',  'e',  'f',  'g',  'h',  kEnd,
                                               'i', 'j', kEnd, kEnd, kEnd, kEnd, kEnd, kEnd, kEnd, kEnd}));
  EXPECT_EQ(rows.labels, (std::vector<int32_t>{'b', 'c',  kEnd, no, 'e', 'f', 'g', 'h', kEnd, no,
                                               'j', kEnd, no,   no, no,  no,  no,  no,  no,   no}));
  EXPECT_EQ(rows.starts, (std::vector<int32_t>{0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 0, 0, 0, 3, 3, 3, 3, 3, 3, 3}));
  EXPECT_EQ(dataset->labelled_in_step(0), rows.labelled);
  expect_user_error([&] { rows_of(*dataset, packing, 0, 0, false); }, {"data.pack", "plan it again"});

  const Recipe alone = recipe(lines, nlohmann::json::object(), 10, 2);
  const auto one_a_row = open_dataset(alone, Split::kEvaluation);
  EXPECT_EQ(one_a_row->size(), 3u);
  const Rows last = rows_of(*one_a_row, alone, 1, 0, false);
  EXPECT_EQ(last.real, 1u);
  EXPECT_EQ(last.labelled, 2u);
  EXPECT_EQ(last.labels[10], no);
}

// The rows of a step must depend only on its position. A data set that is opened again must give
// the same rows. The function labelled_in_step() must return the number of the step's labels.
TEST_F(Chat, StepsAreAFunctionOfThePosition) {
  std::string lines;
  for (int n = 0; n < 23; ++n)
    lines += Json{{"prompt", std::string(static_cast<size_t>(n % 5), 'q')},
                  {"completion", std::string(static_cast<size_t>(n % 7), 'r')}}
                 .dump() +
             "\n";
  Recipe packing = recipe(lines, {{"pack", true}, {"shuffle", true}}, 64, 2);
  packing.accumulate = 3;
  const auto dataset = open_dataset(packing, Split::kTraining), again = open_dataset(packing, Split::kTraining);
  for (uint64_t step = 0; step < 9; ++step) {
    uint64_t labelled = 0;
    for (uint64_t micro = 0; micro < 3; ++micro) {
      const Rows rows = rows_of(*dataset, packing, step, micro, true),
                 same = rows_of(*again, packing, step, micro, true);
      EXPECT_EQ(rows.tokens, same.tokens);
      EXPECT_EQ(rows.starts, same.starts);
      labelled += rows.labelled;
    }
    EXPECT_EQ(dataset->labelled_in_step(step), labelled) << step;
  }
}

TEST_F(Chat, LongSamplesAreRefusedOrCut) {
  const std::string short_line = R"({"text": "a"})"
                                 "\n",
                    long_line = R"({"prompt": "0123456789", "completion": "0123456789"})"
                                "\n";
  const auto open = [&](const Recipe& recipe) { return open_dataset(recipe, Split::kTraining); };
  const std::string path = folder.file("x.jsonl");
  expect_user_error([&] { open(recipe(short_line + long_line, nlohmann::json::object(), 36)); },
                    {path + ", line 2:", "tokens are more than", "36", "\"too_long\": \"cut\""});
  const Recipe cut = recipe(short_line + long_line, {{"too_long", "cut"}}, 36);
  const Rows rows = rows_of(*open(cut), cut, 0, 0, false);
  EXPECT_EQ(rows.tokens[36 + 35], '6') << "18 of the user's turn, 11 of the assistant's beginning, then 0123456";
  EXPECT_EQ(rows.labels[36 + 35], kIgnoredLabel);
  EXPECT_EQ(rows.labels[36 + 34], '6');
  expect_user_error(
      [&] {
        open(recipe(long_line, {{"too_long", "cut"}}, 20));
      },
      {path + ", line 1:", "nothing is learned", "cut to 20"});
  expect_user_error([&] { open(recipe(short_line + "{\n", nlohmann::json::object())); }, {path + ", line 2:"});
  expect_user_error([&] { open(recipe("", nlohmann::json::object())); }, {path, "no samples"});
}

// Every line that would stop a training is named, up to a limit. The other lines form the data set.
TEST_F(Chat, EveryBadLineIsNamed) {
  const std::string good = R"({"text": "abc"})" "\n", path = folder.file("x.jsonl");
  const std::string bad[] = {"{", R"({"prompt": "a"})", R"({"text": "0123456789"})", "[]",
                             R"({"messages": [], "text": "a"})"};
  std::string lines;
  for (const std::string& line : bad) lines += good + line + "\n";
  DataLook look;
  EXPECT_EQ(open_dataset(recipe(lines, nlohmann::json::object(), 8), Split::kTraining, &look)->size(), 5u);
  ASSERT_EQ(look.faults, 5u);
  for (size_t n = 0; n < 5; ++n)
    EXPECT_EQ(look.named[n].rfind(path + ", line " + std::to_string(2 * n + 2) + ": ", 0), 0u) << look.named[n];
  lines.clear();
  for (int n = 0; n < 150; ++n) lines += "{}\n";
  look = DataLook();
  expect_user_error([&] { open_dataset(recipe(lines, nlohmann::json::object()), Split::kTraining, &look); },
                    {path, "not one of its samples"});
  EXPECT_EQ(look.faults, 150u);
  EXPECT_EQ(look.named.size(), DataLook::kMaxNamed);
  look = DataLook();
  look.max_bytes = good.size() + 1;  // ends after the first byte of the second line
  EXPECT_EQ(open_dataset(recipe(good + good + "{\n", nlohmann::json::object()), Split::kTraining, &look)->size(), 2u);
  EXPECT_EQ(look.faults, 0u);

  const Recipe checked = recipe(good + "{\n" + good + "[]\n", nlohmann::json::object());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  EXPECT_EQ(check_data(checked, 1), 1);
  const std::string err = testing::internal::GetCapturedStderr(), out = testing::internal::GetCapturedStdout();
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 4) << "two of either set, which are one file: " << out;
  EXPECT_NE(out.find(", line 2: "), std::string::npos) << out;
  EXPECT_NE(out.find(", line 4: "), std::string::npos) << out;
  EXPECT_NE(err.find("training set: 2 samples would end a training"), std::string::npos) << err;
}

TEST_F(Chat, BadRecordsAreSkippedAndCounted) {
  const std::string path = folder.file("x.jsonl");
  const std::string lines = "[{\"text\": \"abc\"}, {\"text\": 1},\n {\"text\": \"0123456789\"}, {\"text\": \"de\"}]";
  expect_user_error([&] { open_dataset(recipe(lines, nlohmann::json::object(), 8), Split::kTraining); },
                    {path + ", record 2 (line 1): text: "});
  const Recipe skipping = recipe(lines, {{"bad", "skip"}}, 8);
  const auto dataset = open_dataset(skipping, Split::kTraining);
  EXPECT_EQ(dataset->size(), 2u);
  ASSERT_EQ(dataset->warnings().size(), 1u);
  EXPECT_EQ(dataset->warnings()[0].rfind(
                path + ": 2 of 4 records cannot be trained on and are skipped (data.bad is \"skip\"); the first: " +
                    path + ", record 2 (line 1): text: ",
                0),
            0u)
      << dataset->warnings()[0];
  EXPECT_EQ(rows_of(*dataset, skipping, 0, 0, false).tokens[8], 'd');
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  EXPECT_EQ(check_data(skipping, 1), 0);
  const std::string err = testing::internal::GetCapturedStderr(), out = testing::internal::GetCapturedStdout();
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 4) << out;
  EXPECT_NE(err.find("training set: 2 samples are skipped (data.bad is \"skip\")"), std::string::npos) << err;
  look_at_data(skipping, true);
  expect_user_error(
      [&] {
        open_dataset(recipe("[1, 2]", {{"bad", "skip"}}), Split::kTraining);
      },
      {path + ": not one of its samples", "record 1"});
  expect_user_error(
      [&] {
        look_at_data(recipe("[1, 2]", {{"bad", "skip"}}), true);
      },
      {path + ": not one of its samples", "record 1"});
  EXPECT_TRUE(open_dataset(recipe("{\"text\": \"abc\"}", {{"bad", "skip"}}), Split::kTraining)->warnings().empty());
  DataLook look;
  look.max_bytes = 2;
  // A DataLook at a part of the file does not refuse the file.
  open_dataset(recipe("{}\n{\"text\": \"abc\"}\n", {{"bad", "skip"}}), Split::kTraining, &look);
  EXPECT_EQ(look.faults, 1u);
}

// Returns the texts of one split of the records. A tenth of the records is held out.
std::vector<std::string> texts_of_part(const TemporaryFolder& folder, const std::string& lines, Split split,
                                       uint64_t seed) {
  put_file(folder.file("x.csv"), lines);
  const nlohmann::json data = {
      {"kind", "chat"}, {"path", folder.file("x.csv")}, {"shuffle", false}, {"held_out", 0.1}, {"bad", "skip"}};
  const nlohmann::json whole = {
      {"model", {{"huggingface", folder.path()}}}, {"batch", 1}, {"sequence", 8}, {"seed", seed}, {"data", data}};
  const Recipe reading = parse_recipe(whole.dump(), "r.json", "/");
  const auto dataset = open_dataset(reading, split);
  std::vector<std::string> texts;
  for (uint64_t step = 0; step < dataset->size(); ++step) {
    std::string& text = texts.emplace_back();
    for (const int32_t id : rows_of(*dataset, reading, step, 0, false).tokens) {
      if (id < 256) text += static_cast<char>(id);
    }
  }
  return texts;
}

// The two splits together must have every record once, in the order of the file, also if the file
// has a bad record.
TEST_F(Chat, AShareOfTheRecordsIsHeldOut) {
  const auto lines_with = [](int bad) {
    std::string lines = "text\n";
    for (int n = 100; n < 300; ++n) lines += n == bad ? "\"x\"y\n" : "a" + std::to_string(n) + "\n";
    return lines;
  };
  const auto part = [&](Split split, uint64_t seed, int bad = 0) {
    return texts_of_part(folder, lines_with(bad), split, seed);
  };
  std::vector<std::string> trained = part(Split::kTraining, 5), held = part(Split::kEvaluation, 5), both = trained;
  EXPECT_EQ(held.size(), 20u);
  EXPECT_EQ(trained.size(), 180u);
  EXPECT_TRUE(std::is_sorted(held.begin(), held.end()));
  EXPECT_TRUE(std::is_sorted(trained.begin(), trained.end()));
  both.insert(both.end(), held.begin(), held.end());
  std::sort(both.begin(), both.end());
  EXPECT_EQ(std::unique(both.begin(), both.end()) - both.begin(), 200);
  EXPECT_EQ(part(Split::kEvaluation, 5), held) << "a function of place and seed";
  EXPECT_NE(part(Split::kEvaluation, 6), held);
  const int bad = std::stoi(held[7].substr(1));
  EXPECT_EQ(part(Split::kTraining, 5, bad), trained) << "a bad record moves no other one into another part";
  held.erase(held.begin() + 7);
  EXPECT_EQ(part(Split::kEvaluation, 5, bad), held);
  expect_user_error(
      [&] {
        texts_of_part(folder, "text\na\n", Split::kEvaluation, 1),
            texts_of_part(folder, "text\na\n", Split::kTraining, 1);
      },
      {folder.file("x.csv"), "data.held_out", "0.1 of 1 samples leaves none"});
}

TEST_F(Chat, RecipeKeysGoWithTheKind) {
  const auto refused = [&](const nlohmann::json& data, std::initializer_list<std::string> fragments) {
    expect_user_error([&] { recipe("", data); }, fragments);
  };
  refused({{"kind", "text"}, {"pack", true}}, {"data.pack", "\"chat\""});
  refused({{"kind", "text"}, {"train_on", "all"}}, {"data.train_on", "\"chat\""});
  refused({{"too_long", "skip"}}, {"data.too_long", "\"refuse\"", "\"cut\""});
  refused({{"train_on", "user"}}, {"data.train_on", "\"assistant\""});
  refused({{"kind", "text"}, {"bad", "skip"}}, {"data.bad", "\"chat\""});
  refused({{"bad", "cut"}}, {"data.bad", "\"refuse\"", "\"skip\""});
  refused({{"held_out", 0.6}}, {"data.held_out", "0.5"});
  refused({{"held_out", 0.1}}, {"data.held_out", "eval_path"});
  const std::string images =
      R"({"model": {"family": "resnet", "image": [8, 8, 1]}, "batch": 1, "data": {"kind": "idx", "path": "x", "held_out": 0.1}})";
  expect_user_error([&] { parse_recipe(images, "r.json", "/"); }, {"data.held_out", "\"text\""});
  const Recipe read = recipe("", {{"pack", true}, {"train_on", "all"}, {"too_long", "cut"}, {"bad", "skip"}});
  EXPECT_EQ(parse_recipe(canonical_recipe(read), "c.json", "/"), read);
  EXPECT_TRUE(micro_batch_of(read).documents);
  const std::string gpt2 =
      R"({"model": {"family": "gpt2", "vocab_size": 258}, "batch": 1, "data": {"kind": "chat", "path": "x"}})";
  expect_user_error([&] { parse_recipe(gpt2, "r.json", "/"); }, {"data.kind", "tokenizer"});
}

// Before a training only a part of a large file is read. All held-out records may be after this
// part, so their absence from it must not be an error.
TEST_F(Chat, ALookAtAPartKnowsNotWhatIsHeldOut) {
  std::string lines;
  for (int n = 0; n < 2000; ++n) lines += "{\"text\": \"abc\"}\n";
  for (const char* kind : {"chat", "text"}) {
    put_file(folder.file("x.jsonl"), lines);
    const nlohmann::json whole = {{"model", {{"huggingface", folder.path()}}}, {"batch", 1}, {"sequence", 8},
                                  {"data", {{"kind", kind}, {"path", folder.file("x.jsonl")}, {"held_out", 0.001}}}};
    const Recipe reading = parse_recipe(whole.dump(), "r.json", "/");
    DataLook look;
    look.max_bytes = 20;
    open_dataset(reading, Split::kEvaluation, &look);
    EXPECT_EQ(open_dataset(reading, Split::kEvaluation)->size(), kind == std::string("chat") ? 2u : 4u) << kind;
  }
}

TEST_F(Chat, ATextIsReadInTheModelsTokens) {
  std::string text;
  while (text.size() < (3u << 20)) text += "Line " + std::to_string(text.size()) + " <|s|>\n\n  caf\xc3\xa9\n";
  const Recipe reading = [&] {
    Recipe recipe = this->recipe("", {{"kind", "text"}, {"control_tokens", false}}, 64, 1);
    put_file(folder.file("x.jsonl"), text);
    return recipe;
  }();
  const auto dataset = open_dataset(reading, Split::kTraining);
  EXPECT_EQ(dataset->size(), text.size() / 64) << "a token a byte, and the end";
  const auto right = [&](uint64_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : kEnd; };
  for (const uint64_t step : {uint64_t{0}, uint64_t{16383}, uint64_t{16384}, dataset->size() - 1}) {
    const Rows rows = rows_of(*dataset, reading, step, 0, false);
    for (size_t t = 0; t < 64; ++t) {
      ASSERT_EQ(rows.tokens[t], right(step * 64 + t));
      ASSERT_EQ(rows.labels[t], right(step * 64 + t + 1));
    }
  }
  put_file(folder.file("x.jsonl"), text + "\xff" + text);
  expect_user_error([&] { open_dataset(reading, Split::kTraining); }, {folder.file("x.jsonl"), "UTF-8"});
}

}  // namespace
}  // namespace reprise
