package mcmdriver_test

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"
	"github.com/stretchr/testify/require"

	"millwright/provider"
	"millwright/provider/conformance"
	"millwright/provider/driver"
	"millwright/provider/mcmdriver"
	"millwright/provider/mcmdriver/internal/ec2test"
)

// class returns a class as MCM's users have it; its cluster is a tag of the providerSpec.
func class(t testing.TB, name, cluster string, change func(*ec2test.Spec)) provider.Class {
	spec := ec2test.Spec{
		Region: "eu-west-1",
		Tags:   map[string]string{"kubernetes.io/cluster/" + cluster: "1", "kubernetes.io/role/node": "1"},
	}
	change(&spec)
	raw, err := json.Marshal(spec)
	require.NoError(t, err)
	return provider.Class{Namespace: "shop", Name: name, Provider: ec2test.Provider, Spec: raw, Secret: provider.Secret{
		ec2test.SecretKeyID:     []byte("AKIATEST0123456789"),
		ec2test.SecretAccessKey: []byte("test-secret-access-key"),
		ec2test.SecretUserData:  []byte("#!/bin/boot"),
	}}
}

func plain(*ec2test.Spec) {}

func withInitialize(s *ec2test.Spec) { s.SrcAndDstChecksEnabled = new(false) }

// quick makes the waits for earlier creations short.
func quick(window time.Duration) []mcmdriver.Option {
	return []mcmdriver.Option{
		mcmdriver.WithWindow(window),
		mcmdriver.WithAdapter(driver.WithRequestLife(20*time.Millisecond), driver.WithSearchInterval(5*time.Millisecond)),
	}
}

func TestConformance(t *testing.T) {
	for name, row := range map[string]struct{ nameOnly, noStatus, remote bool }{
		"as of AWS": {}, "finds by name alone": {nameOnly: true}, "lists, and has no status": {noStatus: true}, "over HTTP": {remote: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // mostly it waits
			conformance.Run(t, conformance.Harness{New: func(t *testing.T) conformance.Cloud {
				cloud := &ec2test.Cloud{Consistency: 5 * time.Millisecond}
				d := &ec2test.Driver{Cloud: cloud, NameOnly: row.nameOnly, NoStatus: row.noStatus}
				if row.remote {
					server := httptest.NewServer(cloud.Handler())
					t.Cleanup(server.Close)
					d.Cloud = ec2test.Client{URL: server.URL}
				}
				return suiteCloud(t, d, cloud)
			}})
		})
	}
}

func method(m provider.Method) string {
	return map[provider.Method]string{
		provider.MethodCreateInstance:     "CreateMachine",
		provider.MethodInitializeInstance: "InitializeMachine",
		provider.MethodDeleteInstance:     "DeleteMachine",
		provider.MethodInstanceStatus:     "GetMachineStatus",
		provider.MethodListInstances:      "ListMachines",
	}[m]
}

func suiteCloud(t *testing.T, d *ec2test.Driver, ec2 *ec2test.Cloud) conformance.Cloud {
	elsewhere, denied := class(t, "pool", "another", plain), class(t, "pool", "conformance", plain)
	denied.Secret[ec2test.SecretAccessKey] = []byte(ec2test.DeniedKey)
	cloud := conformance.Cloud{
		Provider:  mcmdriver.New(d, quick(20*time.Millisecond)...),
		Class:     class(t, "pool", "conformance", plain),
		Elsewhere: &elsewhere,
		Denied:    &denied,
		OwnVolume: func(handle string) provider.Volume {
			return provider.Volume{CSIDriver: ec2test.CSIDriver, Handle: handle}
		},
		Fail: func(m provider.Method, err *provider.Error) {
			d.Fail(method(m), status.Error(codes.Code(err.Code), err.Message))
		},
		Answers: func(m provider.Method, code provider.Code) bool {
			return m == provider.MethodInstanceStatus &&
				(code == provider.NotFound || code == provider.Unimplemented || code == provider.OutOfRange)
		},
		Timeless:  true,
		CreatesOn: true,
		Hang: func(m provider.Method) {
			d.Hang(method(m), t.Context().Done())
		},
		Plant: func(m provider.Machine) {
			_, err := ec2.RunInstances(ec2test.Instance{Tags: map[string]string{
				"Name": m.Name, "kubernetes.io/cluster/conformance": "1", "kubernetes.io/role/node": "1",
			}})
			require.NoError(t, err)
			time.Sleep(ec2.Consistency)
		},
	}
	if !d.NoStatus { // a list does not show what waits to be initialized
		initializing := class(t, "initializing", "conformance", withInitialize)
		cloud.Initializing = &initializing
	}
	return cloud
}
