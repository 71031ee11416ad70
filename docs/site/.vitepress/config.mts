// The configuration of the documentation site. `make site` runs internal/testkit/site, which writes the
// pages and navigation.json into ../src.
import { readFileSync } from 'node:fs'
import { renderMermaidSVG } from 'beautiful-mermaid'
import { defineConfig } from 'vitepress'

const { sidebar, version, versions, site } = JSON.parse(readFileSync(new URL('../src/navigation.json', import.meta.url), 'utf8'))
const repository = 'https://github.com/kubewasm/kubewasm'

// slugify returns the anchor that the forge makes of a heading.
const slugify = (heading: string) => heading.toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, '').replace(/ /g, '-')

export default defineConfig({
  title: 'kubewasm',
  description: 'WebAssembly plugins for Kubernetes components',
  srcDir: 'src',
  ignoreDeadLinks: 'localhostLinks',
  base: process.env.KUBEWASM_SITE_BASE,
  outDir: process.env.KUBEWASM_SITE_OUT,
  head: [['link', { rel: 'icon', href: 'data:,' }]],
  themeConfig: {
    search: { provider: 'local' },
    sidebar,
    outline: [2, 3],
    nav: [
      { text: 'First week', link: '/guides' },
      { text: version, items: versions.map((v: string) => ({ text: v, link: `${site || 'https://kubewasm.github.io/kubewasm'}/${v}/`, target: '_self' })) },
    ],
    socialLinks: [{ icon: 'github', link: `${repository}/tree/${version}` }],
    externalLinkIcon: true,
  },
  markdown: {
    html: false, // A <name> in a text is text, as in the forge.
    anchor: { slugify },
    toc: { slugify },
    config(md) {
      const fence = md.renderer.rules.fence!
      md.renderer.rules.fence = (tokens, i, ...rest) => {
        if (tokens[i].info.trim() === 'mermaid') {
          // From top to bottom it fits a phone. No font is fetched.
          const svg = renderMermaidSVG(tokens[i].content.replace('flowchart LR', 'flowchart TD'), {
            bg: 'var(--vp-c-bg)', fg: 'var(--vp-c-text-1)', font: 'sans-serif',
          })
          return `<div v-pre style="overflow-x: auto">${svg.replace(/@import [^\n]*\n/, '')
            .replace(/ width="[\d.]+" height="[\d.]+" style="/, ' width="100%" style="min-width: 36rem; ')}</div>`
        }
        // The second word of a fence names a directory or a file: TestPaste reads it.
        tokens[i].info = tokens[i].info.trim().split(' ')[0]
        return fence(tokens, i, ...rest)
      }
    },
  },
})
