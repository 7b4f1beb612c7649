module allot

go 1.24
