package azure_test

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/gardener/machine-controller-manager-provider-azure/pkg/azure/api"
	released "github.com/gardener/machine-controller-manager-provider-azure/pkg/azure/provider"
	"github.com/gardener/machine-controller-manager-provider-azure/pkg/azure/testhelp"
	"github.com/gardener/machine-controller-manager-provider-azure/pkg/azure/utils"
	"github.com/stretchr/testify/require"

	"millwright/provider"
	"millwright/provider/conformance"
	"millwright/provider/mcmdriver/azure"
	"millwright/provider/mcmdriver/internal/mcmtest"
)

func testClass(t *testing.T, spec api.AzureProviderSpec) provider.Class {
	raw, err := json.Marshal(spec)
	require.NoError(t, err)
	return provider.Class{Namespace: "shop", Name: "pool", Provider: "Azure", Spec: raw, Secret: provider.Secret{
		api.SubscriptionID: []byte(testhelp.SubscriptionID), api.TenantID: []byte(testhelp.TenantID),
		api.ClientID: []byte(testhelp.ClientID), api.ClientSecret: []byte(testhelp.ClientSecret),
		api.UserData: []byte(testhelp.UserData),
	}}
}

// MCM's released driver for Azure obeys the contract of package provider. A provider ID of MCM's driver for Azure
// contains the location and the VM, but not the resource group; therefore the other cluster of this test has another
// location.
func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Harness{NewCloud: func(t *testing.T) conformance.Cloud {
		here, there := azure.NewSpec("shoot--here", testhelp.Location), azure.NewSpec("shoot--there", "elsewhere")
		region, err := azure.NewRegion(here, there)
		require.NoError(t, err)
		server := httptest.NewServer(region)
		t.Cleanup(server.Close)
		d := released.NewDefaultDriver(azure.ClientFactory{RegionAddress: server.Listener.Addr().String()})
		cloud := mcmtest.NewConformanceCloud(t, mcmtest.New(d), testClass(t, here), utils.AzureCSIDriverName)
		elsewhere := testClass(t, there)
		cloud.OtherClusterClass, cloud.RequiresUniqueNames = &elsewhere, true
		cloud.CreateInstanceByHand = func(m provider.Machine) { region.CreateVMByHand(m.Name) }
		return cloud
	}})
}
