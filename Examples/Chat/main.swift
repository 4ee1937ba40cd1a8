// A chat room over one long connection each.
//
//     swift run chat-example serve 7100
//     swift run chat-example 127.0.0.1 7100 alice
//
// The client says what is typed, a line each, and ends with its input.
import Foundation
import HHSocketRPC

/// Prints a line at once, for whoever reads along.
func tell(_ line: String) {
    FileHandle.standardOutput.write(Data("\(line)\n".utf8))
}

let arguments = CommandLine.arguments.dropFirst().map { String($0) }
switch (arguments.count, arguments.first) {
case (2, "serve"):
    let port = try await ChatServer().open(port: Int(arguments[1]) ?? 0)
    tell("the room is open on 127.0.0.1:\(port)")
    try await Task.sleep(for: .seconds(1_000_000_000))
case (3, let host?):
    let server = Endpoint(host: host, port: Int(arguments[1]) ?? 0)
    let connection = SocketClient(configuration: .init(servers: [server]))
    connection.connect()
    let client = ChatClient(author: arguments[2], chat: Chat_Chat.Client(connection))
    // Not on the thread that reads the lines, which waits for them.
    let listening = Task.detached { try await client.listen() }
    while let line = readLine() {
        do {
            try await client.say(line)
        } catch {
            tell("(not sent: \(error))")
        }
    }
    listening.cancel()
    await connection.close()
default:
    tell("usage: chat-example serve PORT, or chat-example HOST PORT NAME")
    exit(64)
}
