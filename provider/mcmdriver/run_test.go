package mcmdriver

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/process/commandline"
	"millwright/provider/mcmdriver/internal/ec2test"
)

func TestInvalidFlagsAreRefused(t *testing.T) {
	for arguments, want := range map[string]string{
		"": "--cluster-name",
		"--cluster-name=prod --max-cloud-calls=0":                                                  "--max-cloud-calls is 0",
		"--cluster-name=prod --metrics-address=127.0.0.1:0 --log-level=error --kubeconfig=missing": "read kubeconfig",
		"--queues=machines": "unknown flag: --queues",
	} {
		c := newProvider(&ec2test.Driver{}, "AWS").Command()
		commandline.RefuseUnknownArguments(c)
		c.SetArgs(strings.Fields(arguments))
		err := c.ExecuteContext(t.Context())
		assert.ErrorContains(t, err, want, arguments)
		for _, name := range []string{"kubeconfig", "target-kubeconfig", "temporal-address", "metrics-address", "kube-api-qps", "resource-exhausted-retry"} {
			assert.NotNil(t, c.Flags().Lookup(name), name)
		}
	}
	c := newProvider(&ec2test.Driver{}, "A W S").Command()
	c.SetArgs([]string{})
	require.ErrorContains(t, c.ExecuteContext(t.Context()), "name of provider")
}
