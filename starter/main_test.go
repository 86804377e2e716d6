package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCommandsOfTheStarter(t *testing.T) {
	for _, path := range [][]string{{"bootstrap"}, {"demo"}, {"drain", "extend"}, {"preserve"}, {"rollout", "undo"}} {
		c, rest, err := command().Find(path)
		require.NoError(t, err, path)
		require.Empty(t, rest, path)
		require.Equal(t, path[len(path)-1], c.Name())
	}
}
