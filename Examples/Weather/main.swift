// SPDX-License-Identifier: Apache-2.0
// The structures of a library in C as the bodies of calls, between a server and a client in one program.
//
//     swift run weather-example
public import CWeather
import Foundation
import HHSocketMessage
public import HHSocketProtobufC
import HHSocketRPC
import HHSocketServer

extension Weather__Report: ProtobufCStructure {
    public static func initialize(_ report: UnsafeMutablePointer<Self>?) { weather__report__init(report) }
}

extension Weather__Receipt: ProtobufCStructure {
    public static func initialize(_ receipt: UnsafeMutablePointer<Self>?) { weather__receipt__init(receipt) }
}

let measured = MethodDescriptor<CMessage<Weather__Report>, CMessage<Weather__Receipt>>(
    "weather.Weather/Measured",
    type: 301,
    kind: .unary
)

/// Returns the report that the library measures, packed for the wire.
func report(of station: String, hour: UInt32) throws -> CMessage<Weather__Report> {
    var result: Result<CMessage<Weather__Report>, MessageError>?
    withUnsafeMutablePointer(to: &result) { result in
        station_measure(
            station,
            hour,
            { report, context in
                guard let report, let context else { return }
                let result = context.assumingMemoryBound(to: Result<CMessage<Weather__Report>, MessageError>?.self)
                result.pointee = Result { () throws(MessageError) in try CMessage(packing: report) }
            },
            result
        )
    }
    guard let result else { throw CancellationError() }
    return try result.get()
}

/// Returns the library's line about a report.
func line(about report: UnsafePointer<Weather__Report>) -> String {
    withUnsafeTemporaryAllocation(of: CChar.self, capacity: 200) { line in
        guard let start = line.baseAddress else { return "" }
        station_describe(report, start, line.count)
        return String(cString: start)
    }
}

var router = Router()
router.handle(measured) { report, context in
    try report.withStructure { print("server: \(line(about: $0))") }
    var receipt = Weather__Receipt()
    weather__receipt__init(&receipt)
    receipt.number = 1
    return try CMessage(packing: &receipt)
}
let server = SocketServer(configuration: .init(port: 0), router: router)
try await server.start()
guard let address = server.address else { fatalError("the server has no address") }

let client = SocketClient(configuration: .init(servers: [address]))
client.connect()
let receipt = try await client.call(measured, report(of: "Zugspitze", hour: 14))
try receipt.withStructure { print("client: the report has the number \($0.pointee.number)") }
await client.close()
await server.shutdown()
