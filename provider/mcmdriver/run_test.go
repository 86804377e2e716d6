package mcmdriver

import (
	"flag"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/provider/mcmdriver/internal/ec2test"
)

func TestFlags(t *testing.T) {
	for arguments, want := range map[string]string{
		"": "--cluster-name",
		"--cluster-name=prod --max-cloud-calls=0":                                                  "--max-cloud-calls is 0",
		"--cluster-name=prod --metrics-address=127.0.0.1:0 --log-level=error --kubeconfig=missing": "read kubeconfig",
		"--queues=machines": "not defined: -queues",
	} {
		set := flag.NewFlagSet("test", flag.ContinueOnError)
		set.SetOutput(new(strings.Builder))
		err := process(&ec2test.Driver{}, "AWS").Run(t.Context(), set, strings.Fields(arguments))
		assert.ErrorContains(t, err, want, arguments)
		for _, name := range []string{"kubeconfig", "target-kubeconfig", "temporal-address", "metrics-address", "kube-api-qps", "resource-exhausted-retry"} {
			assert.NotNil(t, set.Lookup(name), name)
		}
	}
	err := process(&ec2test.Driver{}, "A W S").Run(t.Context(), flag.NewFlagSet("test", flag.ContinueOnError), nil)
	require.ErrorContains(t, err, "name of provider")
}
