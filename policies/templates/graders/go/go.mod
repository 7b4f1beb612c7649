module grader/{{name}}

go 1.24

require allot v0.0.0

replace allot => ./sdk
