// SPDX-License-Identifier: Apache-2.0
// A chat room over one long connection each.
//
//     swift run chat-example serve 7100
//     swift run chat-example 127.0.0.1 7100 alice
//
// The client sends each typed line, and ends with its input. The others see when a line is being typed.
//
// With a URL in place of a port the room takes WebSockets too, for Examples/browser. Origins after it are those whose
// pages may connect; without one, those of every page may.
//
//     swift run chat-example serve tcp+ws://127.0.0.1:7100/rpc http://127.0.0.1:8000
//     swift run chat-example ws://127.0.0.1:7100/rpc alice
import Foundation
import HHSocketRPC
import HHSocketServer

/// Prints a line and flushes the output.
func tell(_ line: String) {
    FileHandle.standardOutput.write(Data("\(line)\n".utf8))
}

func serve(_ address: String, origins: [String]) async throws {
    var listener = ServerListener(port: Int(address) ?? 0)
    if address.contains("://") { listener = try ServerListener(url: address) }
    if !origins.isEmpty { listener.webSocket?.origins = .list(origins) }
    guard let opened = try await ChatServer().open(at: listener) else { return }
    tell("the room is open on \(opened)")
    if let webSocket = listener.webSocket, webSocket.sharesPort {
        tell("and on ws://\(opened)\(webSocket.path ?? "/")")
    }
    try await Task.sleep(for: .seconds(1_000_000_000))
}

func visit(_ server: Endpoint, as author: String) async {
    var configuration = SocketClient.Configuration(servers: [server])
    // The stream that shares who is typing requires hello.
    configuration.hello = HelloPolicy()
    configuration.streams = StreamPolicy()
    let connection = SocketClient(configuration: configuration)
    connection.connect()
    let client = ChatClient(author: author, chat: Chat_Chat.Client(connection))
    // Not on the thread that reads the lines, which waits for them.
    let listening = Task.detached { try await client.listen() }
    let typing = TypingState()
    let sharing = Task.detached {
        while !Task.isCancelled {
            do throws(SocketError) {
                try await client.share(await typing.changes())
            } catch  where error.code == .connectionLost {
                // Shared again on the next connection.
            } catch {
                if error.code != .cancelled { tell("(who is typing is not shown: \(error))") }
                return
            }
        }
    }
    var keyboard = Keyboard()
    while let event = await keyboard.next() {
        switch event {
        case .typing(let isTyping): await typing.set(isTyping)
        case .line(let line):
            await typing.hasSaid()
            do {
                try await client.say(line)
            } catch {
                tell("(not sent: \(error))")
            }
        }
    }
    listening.cancel()
    sharing.cancel()
    await connection.close()
}

let arguments = CommandLine.arguments.dropFirst().map { String($0) }
do {
    switch (arguments.count, arguments.first) {
    case (2..., "serve"):
        try await serve(arguments[1], origins: Array(arguments[2...]))
    case (2, let url?):
        try await visit(Endpoint(url: url), as: arguments[1])
    case (3, let host?):
        await visit(Endpoint(host: host, port: Int(arguments[1]) ?? 0), as: arguments[2])
    default:
        tell("usage: chat-example serve PORT, or chat-example HOST PORT NAME")
        tell("or: chat-example serve URL [ORIGIN...], or chat-example URL NAME")
        exit(64)
    }
} catch {
    FileHandle.standardError.write(Data("error: \(error)\n".utf8))
    exit(1)
}
