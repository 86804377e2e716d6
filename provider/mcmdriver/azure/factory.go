package azure

import (
	"net/http"
	"net/url"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v5"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/marketplaceordering/armmarketplaceordering"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v4"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resourcegraph/armresourcegraph"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/gardener/machine-controller-manager-provider-azure/pkg/azure/access"
)

// ClientFactory creates the Azure clients of the driver. The clients send their requests to a Region.
type ClientFactory struct {
	// RegionAddress is the address of the Region's HTTP server, such as 127.0.0.1:8080.
	RegionAddress string
}

var _ access.Factory = ClientFactory{}

// Do implements policy.Transporter.
func (f ClientFactory) Do(request *http.Request) (*http.Response, error) {
	redirected := request.Clone(request.Context())
	redirected.URL = &url.URL{
		Scheme: "http", Host: f.RegionAddress, Path: request.URL.Path, RawPath: request.URL.RawPath,
		RawQuery: request.URL.RawQuery,
	}
	if method, is := request.Context().Value(runtime.CtxAPINameKey{}).(string); is {
		redirected.Header.Set(sdkMethodHeader, method)
	}
	response, err := http.DefaultClient.Do(redirected)
	if response != nil {
		response.Request = request
	}
	return response, err
}

type clientConstructor[C any] func(string, azcore.TokenCredential, *arm.ClientOptions) (*C, error)

func newClient[C any](f ClientFactory, c access.ConnectConfig, construct clientConstructor[C]) (*C, error) {
	options := &arm.ClientOptions{ClientOptions: c.ClientOptions}
	options.Transport = f
	return construct(c.SubscriptionID, &azfake.TokenCredential{}, options)
}

// GetResourceGroupsAccess implements access.Factory.
func (f ClientFactory) GetResourceGroupsAccess(c access.ConnectConfig) (*armresources.ResourceGroupsClient, error) {
	return newClient(f, c, armresources.NewResourceGroupsClient)
}

// GetVirtualMachinesAccess implements access.Factory.
func (f ClientFactory) GetVirtualMachinesAccess(c access.ConnectConfig) (*armcompute.VirtualMachinesClient, error) {
	return newClient(f, c, armcompute.NewVirtualMachinesClient)
}

// GetNetworkInterfacesAccess implements access.Factory.
func (f ClientFactory) GetNetworkInterfacesAccess(c access.ConnectConfig) (*armnetwork.InterfacesClient, error) {
	return newClient(f, c, armnetwork.NewInterfacesClient)
}

// GetSubnetAccess implements access.Factory.
func (f ClientFactory) GetSubnetAccess(c access.ConnectConfig) (*armnetwork.SubnetsClient, error) {
	return newClient(f, c, armnetwork.NewSubnetsClient)
}

// GetDisksAccess implements access.Factory.
func (f ClientFactory) GetDisksAccess(c access.ConnectConfig) (*armcompute.DisksClient, error) {
	return newClient(f, c, armcompute.NewDisksClient)
}

// GetResourceGraphAccess implements access.Factory.
func (f ClientFactory) GetResourceGraphAccess(c access.ConnectConfig) (*armresourcegraph.Client, error) {
	return newClient(
		f,
		c,
		func(_ string, token azcore.TokenCredential, options *arm.ClientOptions) (*armresourcegraph.Client, error) {
			return armresourcegraph.NewClient(token, options)
		},
	)
}

// GetVirtualMachineImagesAccess implements access.Factory.
func (f ClientFactory) GetVirtualMachineImagesAccess(
	c access.ConnectConfig,
) (*armcompute.VirtualMachineImagesClient, error) {
	return newClient(f, c, armcompute.NewVirtualMachineImagesClient)
}

// GetMarketPlaceAgreementsAccess implements access.Factory.
func (f ClientFactory) GetMarketPlaceAgreementsAccess(
	c access.ConnectConfig,
) (*armmarketplaceordering.MarketplaceAgreementsClient, error) {
	return newClient(f, c, armmarketplaceordering.NewMarketplaceAgreementsClient)
}
