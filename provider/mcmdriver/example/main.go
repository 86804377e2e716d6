// Package main is an example of a worker that serves a driver of MCM. A real worker imports the driver's module and
// passes that driver, for AWS for example aws.NewAWSDriver(&spi.PluginSPIImpl{}).
package main

import (
	"millwright/provider/mcmdriver"
	"millwright/provider/mcmdriver/internal/ec2test"
)

func main() {
	mcmdriver.Run(&ec2test.Driver{Cloud: &ec2test.Cloud{}}, "AWS")
}
