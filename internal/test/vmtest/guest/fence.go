package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strings"
)

// fenceMetadata is what the agent says about itself.
const fenceMetadata = `<?xml version="1.0" ?>
<resource-agent name="fence_vm" shortdesc="Fence agent for the machines of a test">
<parameters>
<parameter name="action" unique="0" required="1"><content type="string" default="off"/></parameter>
<parameter name="ip" unique="0" required="1"><content type="string"/></parameter>
<parameter name="plug" unique="0" required="1"><content type="string"/></parameter>
</parameters>
<actions><action name="off"/><action name="reboot"/><action name="status"/><action name="monitor"/><action name="metadata"/></actions>
</resource-agent>`

// fence does what its standard input says, and returns the exit status: for the action status, 2 if the machine is off.
func fence() (status int, err error) {
	options := make(map[string]string)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), "=")
		options[name] = value
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	action := options["action"]
	if action == "metadata" {
		fmt.Println(fenceMetadata)
		return 0, nil
	}
	conn, err := net.Dial("tcp", options["ip"])
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	fmt.Fprintln(conn, action, options["plug"])
	answer, err := bufio.NewReader(conn).ReadString('\n')
	switch {
	case err != nil:
		return 0, err
	case action == "status" && answer == "off\n":
		return 2, nil
	}
	return 0, nil
}
