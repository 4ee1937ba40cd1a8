// SPDX-License-Identifier: Apache-2.0
import HHSocket
import Testing

@Suite struct ProxyTests {
    private static let credentials = Proxy.Credentials(user: "me", password: "p:@/ä")

    @Test(
        arguments: [
            ("http://proxy.example:3128", .http(host: "proxy.example", port: 3_128)),
            ("HTTP://proxy.example/", .http(host: "proxy.example", port: 1_080)),
            ("socks5://10.0.0.1", .socks5(host: "10.0.0.1", port: 1_080)),
            ("socks5h://[::1]:9", .socks5(host: "::1", port: 9)),
            ("socks5://[::1]", .socks5(host: "::1")),
            (
                "http://me:p%3A%40%2F%C3%A4@proxy.example:1",
                .http(host: "proxy.example", port: 1, credentials: credentials)
            ),
            ("http://me:p:@%2Fä@proxy.example:1", .http(host: "proxy.example", port: 1, credentials: credentials)),
            ("socks5://me@a", .socks5(host: "a", credentials: Proxy.Credentials(user: "me", password: ""))),
            ("socks5://:x@a", .socks5(host: "a", credentials: Proxy.Credentials(user: "", password: "x"))),
            ("socks5://@a", .socks5(host: "a")),
        ] as [(String, Proxy)]
    )
    func urlIsRead(url: String, proxy: Proxy) throws {
        #expect(try Proxy(url: url) == proxy)
    }

    @Test(arguments: [
        "", "proxy.example:3128", "https://secret@a", "socks4://a", "socks://a", "http://", "http://:80", "http://a:0",
        "http://a:65536", "http://a:b", "http://a:", "http://a/b", "http://a?b", "http://a#b", "http://::1:80",
        "http://[::1",
        "http://me:secret%@a", "http://%C3:secret@a", "http://a b", "http://a\r\nsecret: b", "http://unix:/a", "://a",
        "http://ä",
    ])
    func urlThatIsSomethingElseIsRefusedWithoutBeingRepeated(url: String) {
        let error = #expect(throws: SocketError.self) { try Proxy(url: url) }
        #expect(error?.code == .invalidArgument)
        #expect(error?.message.contains("secret") == false)
    }

    @Test func nothingShowsThePassword() throws {
        let proxy = Proxy.http(host: "::1", credentials: .init(user: "m:e", password: "secret"))
        #expect("\(proxy)" == "http://m%3Ae@[::1]:1080")
        #expect(try Proxy(url: "\(proxy)").credentials?.user == "m:e")
        var configuration = SocketConfiguration(servers: [])
        configuration.proxy = proxy
        var dumped = ""
        dump(configuration, to: &dumped)
        for text in [
            "\(proxy)", String(reflecting: proxy), "\(configuration)", String(reflecting: configuration), dumped,
        ] {
            #expect(text.contains("m:e") || text.contains("m%3Ae"))
            #expect(!text.contains("secret"))
        }
        #expect(Proxy.socks5(host: "a").description == "socks5://a:1080")
    }
}
