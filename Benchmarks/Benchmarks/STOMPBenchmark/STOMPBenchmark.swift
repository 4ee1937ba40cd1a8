// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketSTOMP
import NIOCore

// The client that Benchmarks/Scripts/bench-stomp compares with others; Benchmarks/STOMPPeers/README.md describes its
// arguments and output.

/// The clocks of a measurement.
struct Clocks {
    private let wall = ContinuousClock.now
    private let processor = Self.processorSeconds()

    /// The time since the clocks were created, as a line of JSON.
    func report() -> String {
        let cpu = Self.processorSeconds() - self.processor
        return "{\"seconds\": \((ContinuousClock.now - self.wall) / .seconds(1)), \"cpu_s\": \(cpu)}"
    }

    private static func processorSeconds() -> Double {
        var time = timespec()
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }
}

/// Sends messages with a receipt for each, from one task for each receipt that may be outstanding.
func send(
    _ count: Int,
    of body: ByteBuffer,
    to destination: String,
    by client: STOMPClient,
    outstanding: Int
) async throws {
    try await withThrowingTaskGroup(of: Void.self) { group in
        for task in 0..<outstanding {
            let share = count / outstanding + (task < count % outstanding ? 1 : 0)
            group.addTask {
                for _ in 0..<share { try await client.send(body, to: destination, receipt: true) }
            }
        }
        try await group.waitForAll()
    }
}

/// Receives messages, and acknowledges each.
///
/// - Returns: The report of all but the first ones.
func receive(_ messages: STOMPSubscription, warmUp: Int, count: Int, length: Int) async throws -> String {
    var received = 0
    var clocks = Clocks()
    for try await message in messages {
        guard message.body.readableBytes == length else { exit(1) }
        if received == warmUp { clocks = Clocks() }
        received += 1
        guard received == warmUp + count else {
            message.ack(completion: nil)
            continue
        }
        try await message.ack(receipt: true)
        break
    }
    return clocks.report()
}

@main
struct STOMPBenchmark {
    static func main() async throws {
        let arguments = CommandLine.arguments
        guard arguments.count == 8, let count = Int(arguments[4]), let warmUp = Int(arguments[5]),
            let length = Int(arguments[6]), let outstanding = Int(arguments[7])
        else {
            FileHandle.standardError.write(
                Data("usage: send|receive URL DESTINATION COUNT WARM_UP BODY OUTSTANDING\n".utf8)
            )
            exit(64)
        }
        let (url, destination) = (arguments[2], arguments[3])
        var configuration = try STOMPClient.Configuration(url: url)
        configuration.host = "/"
        configuration.credentials = { STOMPCredentials(login: "guest", passcode: "guest") }
        configuration.heartbeats = .off
        let client = STOMPClient(configuration: configuration)
        client.connect()
        @Sendable func measure() async throws {
            if arguments[1] == "send" {
                let body = ByteBuffer(repeating: UInt8(ascii: "x"), count: length)
                try await send(warmUp, of: body, to: destination, by: client, outstanding: outstanding)
                let clocks = Clocks()
                try await send(count, of: body, to: destination, by: client, outstanding: outstanding)
                print(clocks.report())
            } else {
                let messages = try client.subscribe(to: destination, ack: .clientIndividual, window: outstanding)
                print(try await receive(messages, warmUp: warmUp, count: count, length: length))
            }
        }
        if #available(macOS 15, *) {
            // As Threads.md describes: tasks on the socket's thread do not change threads for each message.
            try await withTaskExecutorPreference(client.executor) { try await measure() }
        } else {
            try await measure()
        }
        try? await client.disconnect()
    }
}
