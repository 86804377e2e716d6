// Package conformance checks whether a Provider obeys the contract of package provider. The test of each provider calls Run
// with a Harness; a new provider is complete when that passes. It uses the interface only and knows no cloud.
package conformance

import (
	"testing"
	"time"

	"github.com/stretchr/testify/suite"

	"millwright/provider"
)

// Harness gives the suite a provider to check.
type Harness struct {
	// New returns a provider with an empty cloud. It is called once for each test, which registers its own clean-up.
	New func(t *testing.T) Cloud
}

// Cloud is a provider, and what its test can do to the cloud behind it. A nil field is not supported: the tests that need it
// are skipped, and say so.
type Cloud struct {
	Provider provider.Provider

	// Class is a class that instances can be created from, with a valid Secret.
	Class provider.Class

	// Initializing is a class whose instances wait for InitializeInstance. Instances of Class never do.
	Initializing *provider.Class

	// OwnVolume returns a volume of this cloud with that handle.
	OwnVolume func(handle string) provider.Volume

	// Fail makes the next call of a method end with that code, message and RetryAfter. It is not called for VolumeIDs.
	Fail func(method provider.Method, err *provider.Error)

	// Hang makes calls of a method hang until the test ends. It is not called for VolumeIDs.
	Hang func(method provider.Method)

	// Plant creates an instance of Class for the machine, whether or not there is one.
	Plant func(machine provider.Machine)
}

// The numbers of the suite.
const (
	// prompt is how soon after the end of its context a call must return: generous, since test machines stall.
	prompt = 2 * time.Second

	// patience is how long to wait for slow actions of a cloud, such as deleting an instance.
	patience = 10 * time.Second

	cluster = "conformance"
)

// canaries are the values in the Secret that must never appear in a result. They look like real secrets.
func canaries() map[string]string {
	return map[string]string{
		"conformancePassword": "canary-7f3a9c51d2e84b60",
		"conformanceKey":      "-----BEGIN CANARY-----\nc0ffee5eed\n-----END CANARY-----\n",
	}
}

// Run checks the provider.
func Run(t *testing.T, h Harness) {
	t.Helper()
	suite.Run(t, &conformance{harness: h})
}

// conformance is the suite; each test has a cloud of its own.
type conformance struct {
	suite.Suite
	Cloud
	harness  Harness
	machines int // number of machines made, for unique names
}
