module ottla/container

go 1.25.0
