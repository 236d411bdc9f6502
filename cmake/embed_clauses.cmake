# Writes OUTPUT, a C++ source with the clause tables OPERATORS/*/clauses*.txt as string literals: the program carries
# them, and a compiler reads a literal hundreds of times faster than an initializer per row.
#   cmake -DOPERATORS=DIR -DOUTPUT=FILE -P embed_clauses.cmake
cmake_minimum_required(VERSION 3.22)
file(GLOB tables ${OPERATORS}/*/clauses*.txt)  # sorted: clauses.txt comes before clauses_by_hand.txt
file(WRITE ${OUTPUT} "// Written by cmake/embed_clauses.cmake.\n#include \"properties/laws/clause_tables.h\"\n\n"
  "namespace attncheck::properties {\nnamespace {\n")
set(rows "")
set(number 0)
foreach(table ${tables})
  get_filename_component(folder ${table} DIRECTORY)
  get_filename_component(folder ${folder} NAME)
  file(READ ${table} text)
  math(EXPR number "${number} + 1")
  file(APPEND ${OUTPUT} "\nconstexpr char kText${number}[] = R\"clauses(${text})clauses\";\n")
  string(APPEND rows "    {\"${folder}\", {kText${number}, sizeof(kText${number}) - 1}},\n")
endforeach()
file(APPEND ${OUTPUT} "\nconstexpr ClauseTable kTables[] = {\n${rows}};\n\n}  // namespace\n\n"
  "std::span<const ClauseTable> embedded_clause_tables() { return kTables; }\n\n}  // namespace attncheck::properties\n")
