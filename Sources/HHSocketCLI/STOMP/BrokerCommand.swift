// SPDX-License-Identifier: Apache-2.0
import ArgumentParser

/// `hhsocket stomp`
struct BrokerCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "stomp",
        abstract: "Send messages to a STOMP broker, or receive them.",
        subcommands: [STOMPSendCommand.self, STOMPSubscribeCommand.self]
    )
}
