module handler

go 1.22
