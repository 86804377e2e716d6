package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCommandsOfTheStarter(t *testing.T) {
	for _, path := range [][]string{{"bootstrap"}, {"demo"}, {"drain", "extend"}, {"preserve"}, {"rollout", "undo"}, {"provider", "check"}, {"explain"}, {"top"}, {"ui"}, {"doctor"}} {
		c, rest, err := command().Find(path)
		require.NoError(t, err, path)
		require.Empty(t, rest, path)
		require.Equal(t, path[len(path)-1], c.Name())
	}
}

func TestVersionOfTheStarter(t *testing.T) {
	var out bytes.Buffer
	c := command()
	c.SetArgs([]string{"--version"})
	c.SetOut(&out)
	require.NoError(t, c.Execute())
	require.Regexp(t, `^starter version \S+`, out.String())
}
