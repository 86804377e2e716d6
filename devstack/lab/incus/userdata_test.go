package incus

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUserDataKeepsTheWorkersPlaceholders(t *testing.T) {
	text, err := UserData(JoinConfig{Server: "https://10.200.0.2:6443", CA: "-----BEGIN CERTIFICATE-----\n"})
	require.NoError(t, err)
	for _, want := range []string{
		"#!/bin/sh\n", `server: "https://10.200.0.2:6443"`, "\n-----BEGIN CERTIFICATE-----\nEND\n", `token: "<<BOOTSTRAP_TOKEN>>"`,
		"\nprovider_id=incus:///default/<<MACHINE_NAME>>\n",
	} {
		assert.Contains(t, text, want)
	}
}
