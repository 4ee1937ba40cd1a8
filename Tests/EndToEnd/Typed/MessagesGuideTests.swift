// SPDX-License-Identifier: Apache-2.0
public import CWeather
import GeneratedSamples
import HHSocketMessage
public import HHSocketProtobufC
import HHSocketRPC
import HHSocketServer
import TestSupport
import Testing

@testable import chat_example

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

/// The examples of `Docs/Messages.md`, word for word.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct MessagesGuideTests {
    @Test func everyExampleOfThePageIsInThisFile() throws {
        let allowed: Set = ["chat_example", "CWeather", "GeneratedSamples"]
        #expect(try DocumentationPage("Docs/Messages.md").shortcomings(allowing: allowed) == [])
    }

    private func message(_ text: String) -> Chat_Message {
        var message = Chat_Message()
        message.author = "ann"
        message.text = text
        return message
    }

    private func note(_ text: String) -> Chat_Note {
        var note = Chat_Note()
        note.message = self.message(text)
        return note
    }

    @Test func fields() {
        var entry = Kv_Entry.with { $0.key = "user/ann" }
        entry.lifetime.seconds = 60
        if entry.hasVersion { entry.clearVersion() }

        #expect(entry.hasLifetime && !entry.hasVersion)

        var cache = ["user/ann": entry.value]
        let changed = Kv_Changed.with { $0.deleted = "user/ann" }

        switch changed.change {
        case .stored(let entry): cache[entry.key] = entry.value
        case .deleted(let key): cache[key] = nil
        case nil: break
        }

        #expect(cache.isEmpty)
    }

    /// The defaults of the page's table of limits.
    @Test func defaultsOfLimits() {
        let limits = MessageLimits.standard
        #expect(limits.depth == 100 && limits.memory == 32 << 20 && limits.memoryPerByte == 8)
    }

    /// Each option that the page lists has a row, with the default that it has.
    @Test func optionsOfJSON() throws {
        let section = try DocumentationPage("Docs/Messages.md", section: "JSON").text
        for option in Mirror(reflecting: MessageJSON.EncodingOptions()).children {
            guard let name = option.label, name != "acceptsUndeclaredTypes" else { continue }
            let row = try #require(section.split(separator: "\n").first { $0.hasPrefix("| `\(name)` |") }, "\(name)")
            if let value = option.value as? Bool { #expect(row.contains("| `\(value)` |")) }
        }
    }

    @Test func conveniences() throws {
        let news = Chat_Note.with {
            $0.number = 7
            $0.message.text = "hello"
        }
        let data = try news.serializedData()
        let bytes: [UInt8] = try news.serializedBytes()
        let fromData = try Chat_Note(serializedBytes: data)
        let fromBytes = try Chat_Note(serializedBytes: bytes)

        #expect(fromData == news && fromBytes == news && Array(data) == bytes)
        #expect(news.number == 7 && news.message.text == "hello")
    }

    @Test func limits() throws {
        var message = self.message("hello")
        let (bytes, more) = try (self.note("news").serializedBytes(), self.message("again").serializedBytes())

        let note = try Chat_Note(serializedBytes: bytes, limits: MessageLimits(depth: 10, memory: 1 << 20))
        try message.merge(serializedBytes: more)

        #expect(note == self.note("news"))
        #expect(message.text == "again")
        #expect(throws: MessageError.self) { try Chat_Note(serializedBytes: bytes, limits: MessageLimits(depth: 1)) }
    }

    @Test func anyAndStruct() throws {
        let note = Chat_Note.with { $0.number = 7 }
        let any = try Google_Protobuf_Any(message: note)
        let same = try Chat_Note(unpackingAny: any)

        var settings: Google_Protobuf_Struct = ["volume": 0.5, "languages": ["de", "en"]]
        settings.fields["isMuted"] = true

        #expect(same == note)
        #expect(try settings.jsonString() == #"{"isMuted":true,"languages":["de","en"],"volume":0.5}"#)
    }

    @Test func extensions() throws {
        var animal = Extended_Animal()
        animal.heart = Extended_Animal.Heart()

        animal.Extended_age = 7
        if animal.hasExtended_age { animal.clearExtended_age() }

        #expect(!animal.hasExtended_age)
        animal.Extended_age = 8

        var options = MessageJSON.EncodingOptions()
        options.types = MessageTypes(extensions: [Extended_Extensions_age])
        let text = try animal.jsonString(options: options)

        #expect(text == #"{"heart":{},"[extended.age]":8}"#)
    }

    @Test func json() throws {
        let note = self.note("news")

        let text = try note.jsonString()
        let same = try Chat_Note(jsonString: text)

        #expect(same == note)
        #expect(text == #"{"message":{"author":"ann","text":"news"}}"#)
    }

    @Test func jsonWithOptions() throws {
        let text = #"{"message": {"author": "ann", "text": "news", "color": 3}}"#

        var options = MessageJSON.DecodingOptions()
        options.ignoreUnknownFields = true
        options.types = MessageTypes([Chat_Note.self])
        let note = try Chat_Note(jsonString: text, options: options)

        #expect(note == self.note("news"))
        #expect {
            try Chat_Note(jsonString: #"{"message":{"text":1}}"#)
        } throws: { error in
            "\(error)" == "$.message.text: expected a string, found a number"
        }
    }

    @Test func structures() async throws {
        var router = Router()
        router.handle(measured) { report, context in
            var receipt = Weather__Receipt()
            weather__receipt__init(&receipt)
            receipt.number = try report.withStructure { UInt64($0.pointee.temperature) }
            return try CMessage(packing: &receipt)
        }
        let server = SocketServer(configuration: .init(port: 0), router: router)
        try await server.start()
        let client = SocketClient(configuration: .init(servers: server.addresses))
        client.connect()
        var report = Weather__Report()
        weather__report__init(&report)
        report.temperature = 21

        let receipt = try await client.call(measured, CMessage(packing: &report))
        try receipt.withStructure { receipt in print(receipt.pointee.number) }

        #expect(try receipt.withStructure { $0.pointee.number } == 21)
        await client.close()
        await server.shutdown()
    }

    @Test func limitsOfClientsAndRouters() {
        var configuration = SocketClient.Configuration(servers: [])
        var router = Router()

        configuration.messageLimits = MessageLimits(depth: 10, memory: 1 << 20)

        router.messageLimits = MessageLimits(depth: 10, memory: 1 << 20)
        router.register(ChatRoom())

        #expect(configuration.messageLimits == router.messageLimits)
    }
}
