"""What tests share that is no test: generators, machines that attack, and small tools."""
