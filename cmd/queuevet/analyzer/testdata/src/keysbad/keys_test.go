package keysbad

import "testing"

func TestAdd(*testing.T) { untyped.Add(&job{}) }
