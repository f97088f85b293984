# Writes page.html as a C++ text, with its style sheet and scripts at the places that name them. DIR
# is the folder of these files. Pieces stay below 60 kB, which any compiler accepts in one literal.
function put(line) {
  if (bytes + length(line) > 60000) { printf ")page\"\nR\"page("; bytes = 0 }
  bytes += length(line) + 1
  print line
}
function put_file(name,   line, status) {
  while ((status = (getline line < (DIR "/" name))) > 0) put(line)
  if (status < 0) { print "embed.awk: cannot read " DIR "/" name > "/dev/stderr"; failed = 1; exit 1 }
  close(DIR "/" name)
}
BEGIN { printf "// Made by the build from tools/plan/audit/page.\nnamespace reprise {\nextern const char kPageText[];\nconst char kPageText[] = R\"page(" }
/<script src=/ { put("<script>"); put_file(substr($0, index($0, "src=\"") + 5, index($0, "\"></script>") - index($0, "src=\"") - 5)); put("</script>"); next }
/<link rel="stylesheet"/ { put("<style>"); put_file("page.css"); put("</style>"); next }
{ put($0) }
END { if (!failed) printf ")page\";\n}  // namespace reprise\n" }
