# Writes OUTPUT, a C++ source with the tables SUITE/operators/*/*.txt and SUITE/search/*.txt as string literals: the program carries them, and a
# compiler reads a literal in a tenth of the time of an initializer per row.
#   cmake -DSUITE=DIR -DOUTPUT=FILE -P embed_tables.cmake
cmake_minimum_required(VERSION 3.22)
file(GLOB tables ${SUITE}/operators/*/*.txt ${SUITE}/search/*.txt)  # sorted: clauses.txt comes before clauses_by_hand.txt
file(WRITE ${OUTPUT} "// Written by cmake/embed_tables.cmake.\n#include \"properties/case/embedded_tables.h\"\n\n"
  "namespace attncheck::properties {\nnamespace {\n")
set(rows "")
set(number 0)
foreach(table ${tables})
  get_filename_component(file ${table} NAME)
  get_filename_component(folder ${table} DIRECTORY)
  get_filename_component(folder ${folder} NAME)
  file(READ ${table} text)
  math(EXPR number "${number} + 1")
  file(APPEND ${OUTPUT} "\nconstexpr char kText${number}[] = R\"table(${text})table\";\n")
  string(APPEND rows "    {\"${folder}\", \"${file}\", {kText${number}, sizeof(kText${number}) - 1}},\n")
endforeach()
file(APPEND ${OUTPUT} "\nconstexpr EmbeddedTable kTables[] = {\n${rows}};\n\n}  // namespace\n\n"
  "std::span<const EmbeddedTable> embedded_tables() { return kTables; }\n\n}  // namespace attncheck::properties\n")
