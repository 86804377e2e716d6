package cache_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/observe/cache"
)

// A driver and a cloud controller manager write the ID of the same instance in different forms.
func TestProviderIDsOfTheSameInstance(t *testing.T) {
	for _, row := range []struct {
		what string
		a, b string
		same bool
	}{
		{"the same text", "virtual:///eu-1/i-1", "virtual:///eu-1/i-1", true},
		{"AWS: region and zone", "aws:///eu-west-1/i-1", "aws:///eu-west-1a/i-1", true},
		{"GCP: with and without a host", "gce:///project/eu-west1-b/m-1", "gce://project/eu-west1-b/m-1", true},
		{"Azure: location and resource", "azure:///westeurope/m-1", "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/m-1", true},
		{"OpenStack: with and without the region", "openstack:///RegionOne/8f0c", "openstack:///8f0c", true},
		{"vSphere: no path", "vsphere://4219-ab", "vsphere://4219-ab", true},
		{"another instance", "aws:///eu-west-1/i-1", "aws:///eu-west-1a/i-2", false},
		{"another instance whose ID ends alike", "aws:///eu-west-1/i-1", "aws:///eu-west-1/xi-1", false},
		{"another cloud", "aws:///eu-west-1/i-1", "gce:///eu-west-1/i-1", false},
		{"no cloud at all", "eu-west-1/i-1", "eu-west-2/i-1", false},
		{"none is no instance", "", "", false},
		{"nor does it have an empty name", "aws:///eu-west-1/", "aws:///eu-west-2/", false},
	} {
		assert.Equal(t, row.same, cache.SameInstance(row.a, row.b), row.what)
		assert.Equal(t, row.same, cache.SameInstance(row.b, row.a), row.what)
	}
}
