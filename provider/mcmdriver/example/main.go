// Package main is an example of a worker for a driver of machine-controller-manager. A real worker imports the driver's
// module and passes the driver to Run, for example aws.NewAWSDriver(&spi.PluginSPIImpl{}) for AWS.
package main

import (
	"millwright/provider/mcmdriver"
	"millwright/provider/mcmdriver/internal/ec2test"
)

func main() {
	mcmdriver.Run(&ec2test.Driver{Cloud: &ec2test.Cloud{}}, "AWS")
}
