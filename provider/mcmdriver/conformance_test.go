package mcmdriver_test

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/provider"
	"millwright/provider/conformance"
	"millwright/provider/mcmdriver/internal/ec2test"
	"millwright/provider/mcmdriver/internal/mcmtest"
)

// testClass returns a class as MCM installations have it: the providerSpec contains the name of the cluster as a tag.
func testClass(t testing.TB, name, cluster string, change func(*ec2test.Spec)) provider.Class {
	spec := ec2test.Spec{
		Region: "eu-west-1",
		Tags:   map[string]string{"kubernetes.io/cluster/" + cluster: "1", "kubernetes.io/role/node": "1"},
	}
	change(&spec)
	raw, err := json.Marshal(spec)
	require.NoError(t, err)
	return provider.Class{
		Namespace: "shop",
		Name:      name,
		Provider:  ec2test.ProviderName,
		Spec:      raw,
		Secret: provider.Secret{
			ec2test.SecretKeyAccessKeyID:     []byte("AKIATEST0123456789"),
			ec2test.SecretKeySecretAccessKey: []byte("test-secret-access-key"),
			ec2test.SecretKeyUserData:        []byte("#!/bin/boot"),
		},
	}
}

func leaveSpecUnchanged(*ec2test.Spec) {}

func withInitializeStep(s *ec2test.Spec) { s.SrcAndDstChecksEnabled = new(false) }

func TestConformance(t *testing.T) {
	for name, row := range map[string]struct{ nameOnly, noStatus, remote bool }{
		"as of AWS": {}, "finds by name alone": {nameOnly: true}, "lists, and has no status": {noStatus: true}, "over HTTP": {remote: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the test mostly waits
			conformance.Run(t, conformance.Harness{NewCloud: func(t *testing.T) conformance.Cloud {
				cloud := &ec2test.Cloud{ReadDelay: 5 * time.Millisecond}
				d := &ec2test.Driver{Cloud: cloud, IgnoresProviderID: row.nameOnly, LacksGetMachineStatus: row.noStatus}
				if row.remote {
					server := httptest.NewServer(cloud.Handler())
					t.Cleanup(server.Close)
					d.Cloud = ec2test.Client{URL: server.URL}
				}
				return newConformanceCloud(t, d, cloud)
			}})
		})
	}
}

func newConformanceCloud(t *testing.T, d *ec2test.Driver, ec2 *ec2test.Cloud) conformance.Cloud {
	elsewhere, denied := testClass(
		t,
		"pool",
		"another",
		leaveSpecUnchanged,
	), testClass(
		t,
		"pool",
		"conformance",
		leaveSpecUnchanged,
	)
	denied.Secret[ec2test.SecretKeySecretAccessKey] = []byte(ec2test.DeniedSecretAccessKey)
	cloud := mcmtest.NewConformanceCloud(
		t,
		mcmtest.New(d),
		testClass(t, "pool", "conformance", leaveSpecUnchanged),
		ec2test.CSIDriver,
	)
	cloud.OtherClusterClass, cloud.DeniedClass = &elsewhere, &denied
	cloud.CreateInstanceByHand = func(m provider.Machine) {
		_, err := ec2.RunInstances(ec2test.Instance{Tags: map[string]string{
			"Name": m.Name, "kubernetes.io/cluster/conformance": "1", "kubernetes.io/role/node": "1",
		}})
		require.NoError(t, err)
		time.Sleep(ec2.ReadDelay)
	}
	if !d.LacksGetMachineStatus { // a list does not show which instances wait for InitializeMachine
		initializing := testClass(t, "initializing", "conformance", withInitializeStep)
		cloud.ClassWithInitializeStep = &initializing
	}
	return cloud
}
