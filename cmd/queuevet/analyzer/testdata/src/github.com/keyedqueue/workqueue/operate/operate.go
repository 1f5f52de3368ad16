package operate

type Fact struct{ Name, Value string }
