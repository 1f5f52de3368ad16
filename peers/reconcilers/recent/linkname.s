// A file in assembler lets the compiler accept a function without a body.
