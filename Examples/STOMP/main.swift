// SPDX-License-Identifier: Apache-2.0
// Orders through a broker: sent with receipts, accepted one at a time, and answered in transactions.
//
//     make stomp-broker                                    # a RabbitMQ on stomp://127.0.0.1:61613, until control-C
//     swift run stomp-example stomp://127.0.0.1:61613
import Foundation
import HHSocketSTOMP

/// Prints a line and flushes the output.
func tell(_ line: String) {
    FileHandle.standardOutput.write(Data("\(line)\n".utf8))
}

struct OutOfStock: Error {}

/// Accepts an order: its invoice and its acknowledgement take effect together, or not at all.
func accept(_ order: STOMPMessage, inStock: Bool, with client: STOMPClient) async throws {
    try await client.transaction { transaction in
        try await transaction.send("invoice for \(order.text ?? "?")", to: "/queue/example-invoices")
        guard inStock else { throw OutOfStock() }
        try await transaction.ack(order)
    }
}

func trade(at url: String) async throws {
    var configuration = try STOMPClient.Configuration(url: url)
    // RabbitMQ's virtual host.
    configuration.host = "/"
    let client = STOMPClient(configuration: configuration)
    let events = client.events
    let orders = try client.subscribe(to: "/queue/example-orders", ack: .clientIndividual, window: 1)
    let invoices = try client.subscribe(to: "/queue/example-invoices")

    // One attempt, so that it ends if there is no broker. Without a number it keeps trying until there is one.
    client.connect(attempts: 1)
    try await orders.waitUntilConfirmed()
    for await case .opened(let agreement) in events {
        tell("connected: STOMP \(agreement.version)")
        break
    }

    for order in ["two teapots", "a samovar"] {
        try await client.send(order, to: "/queue/example-orders", receipt: true)
        tell("sent and confirmed: \(order)")
    }

    var accepted = 0
    for try await order in orders {
        let text = order.text ?? "?"
        if text == "two teapots", order.headers["redelivered"] == "false" {
            tell("not now: \(text)")
            try await order.nack()
            continue
        }
        if text == "a samovar" {
            do {
                try await accept(order, inStock: false, with: client)
            } catch is OutOfStock {
                tell("out of stock, no invoice: \(text)")
            }
            try await order.ack()
        } else {
            try await accept(order, inStock: true, with: client)
            tell("accepted: \(text)")
        }
        accepted += 1
        if accepted == 2 { break }
    }

    for try await invoice in invoices {
        tell("received: \(invoice.text ?? "?")")
        break
    }
    try await client.disconnect()
    tell("disconnected")
}

do {
    try await trade(at: CommandLine.arguments.dropFirst().first ?? "stomp://127.0.0.1:61613")
} catch {
    tell("failed: \(error)")
    exit(1)
}
