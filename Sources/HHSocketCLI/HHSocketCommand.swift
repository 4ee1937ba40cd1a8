import ArgumentParser

@main
struct HHSocketCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "hhsocket",
        abstract: "Calls, pushes and servers over one long TCP connection.",
        discussion: """
            Payloads go to stdout byte for byte, everything else to stderr. Exit codes: 0 when all went well, 1 when \
            something failed, 64 for wrong usage.
            """,
        subcommands: [
            ServeCommand.self,
            CallCommand.self,
            ListenCommand.self,
            InspectCommand.self,
            DescribeCommand.self,
            BenchCommand.self,
            DemoCommand.self,
        ]
    )
}
