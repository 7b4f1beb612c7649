module podium

go 1.24

require allot v0.0.0

replace allot => ../../../../policies/sdk/go
